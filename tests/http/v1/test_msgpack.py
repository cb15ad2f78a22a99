"""Publishing and receiving in MessagePack, as the client does."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from penstock.core.message import parse_message_id
from tests.http.v1.conftest import Api, Reply

BATCH = "application/vnd.penstock.batch+msgpack"
PACKED = "application/msgpack"
LATER = datetime(2040, 1, 31, 12, tzinfo=UTC)


def publish(api: Api, queue: str, *messages: Any, **headers: str) -> Reply:
    body = msgspec.msgpack.encode({"messages": messages})
    given: dict[str, str | bytes] = {"Content-Type": BATCH, "Accept": PACKED}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    return api.send("POST", f"{queue}/messages", body, given)


def receive(api: Api, queue: str) -> list[dict[str, Any]]:
    path = f"{queue}/subscriptions/default/receive"
    reply = api.send("POST", path, b'{"limit": 10}', {"Accept": PACKED})
    assert (reply.status, reply.headers["content-type"]) == (200, PACKED)
    found: list[dict[str, Any]] = msgspec.msgpack.decode(reply.body)["deliveries"]
    return found


def test_a_message_that_is_just_a_body_is_just_bytes(user: Api, queue: str) -> None:
    # When
    reply = publish(user, queue, b"text", b"\xff\x00")

    # Then the answer tells the first one, from which the others follow
    assert (reply.status, reply.headers["content-type"]) == (201, PACKED)
    answer = msgspec.msgpack.decode(reply.body)
    assert answer.keys() == {"durability", "count", "index", "id"}
    assert (answer["durability"], answer["count"], answer["index"]) == ("memory", 2, 0)
    first, second = receive(user, queue)
    assert (first["id"], first["body"], second["body_base64"]) == (
        answer["id"],
        "text",
        b"\xff\x00",
    )
    begins, follows = parse_message_id(first["id"]), parse_message_id(second["id"])
    assert begins is not None
    assert follows == msgspec.structs.replace(begins, index=1)


def test_what_is_not_set_is_left_out(user: Api, queue: str) -> None:
    publish(user, queue, b"plain")

    [delivery] = receive(user, queue)

    names = {"index", "id", "body", "created_at", "receipt", "deliveries", "deadline"}
    assert delivery.keys() == names
    assert isinstance(delivery["deadline"], datetime)


def test_a_message_may_have_all_that_one_in_json_has(user: Api, queue: str) -> None:
    fields = {
        "content_type": "text/plain",
        "attributes": {"colour": "red"},
        "topic": "t",
        "priority": 7,
        "expires_at": LATER,
        "group_key": "g",
        "dedup_key": "d",
    }
    publish(user, queue, {"body": b"hello", **fields}, b"other")

    first, second = receive(user, queue)

    assert {name: first[name] for name in fields} == fields
    assert (first["body"], second["body"]) == ("hello", "other")


def test_duplicates_are_told_one_by_one(user: Api, queue: str) -> None:
    publish(user, queue, {"body": b"x", "dedup_key": "k"})

    reply = publish(user, queue, b"y", {"body": b"x", "dedup_key": "k"})

    messages = msgspec.msgpack.decode(reply.body)["messages"]
    assert [(one["index"], one["duplicate"]) for one in messages] == [(1, False), (0, True)]


def test_who_does_not_ask_for_it_gets_json(user: Api, queue: str) -> None:
    reply = publish(user, queue, b"x", Accept="*/*")

    assert reply.json["messages"][0]["index"] == 0


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"{}",
        msgspec.msgpack.encode({"messages": []}),
        msgspec.msgpack.encode({"messages": ["text"]}),
        msgspec.msgpack.encode({"messages": [{"body": b"x", "colour": "red"}]}),
        msgspec.msgpack.encode({"messages": [{"body": b"x", "priority": 11}]}),
        msgspec.msgpack.encode({"messages": [{"body": b"x", "not_before": "soon"}]}),
        msgspec.msgpack.encode({"messages": [b"x"]})[:-1],
        b"\x91" * 100_000,
    ],
)
def test_what_is_no_batch_is_refused(user: Api, queue: str, body: bytes) -> None:
    reply = user.send("POST", f"{queue}/messages", body, {"Content-Type": BATCH, "Accept": PACKED})

    assert (reply.status, reply.json["code"]) == (400, "invalid_argument")
    assert receive(user, queue) == []
