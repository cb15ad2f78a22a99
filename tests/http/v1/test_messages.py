"""Publishing and reading over the native API."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from tests.http.v1.conftest import Api, Reply

BATCH = "application/vnd.penstock.batch+json"
NDJSON = "application/x-ndjson"


def publish(api: Api, queue: str, *messages: Any, key: str | None = None) -> Reply:
    headers: dict[str, str | bytes] = {"Content-Type": BATCH}
    if key is not None:
        headers["Idempotency-Key"] = key
    body = msgspec.json.encode({"messages": messages})
    return api.send("POST", f"{queue}/messages", body, headers)


def read(api: Api, queue: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.get(f"{queue}/messages").json["messages"]
    return found


def test_a_body_of_any_content_type_is_one_message(user: Api, queue: str) -> None:
    reply = user.send("POST", f"{queue}/messages", b"<a/>", {"Content-Type": "text/xml"})

    assert reply.status == 201
    [published] = reply.json["messages"]
    assert reply.json["durability"] == "memory"
    assert (published["index"], published["duplicate"]) == (0, False)
    message = user.get(f"{queue}/messages/{published['id']}").json
    assert (message["body"], message["content_type"]) == ("<a/>", "text/xml")
    assert message["dead_letter"] is None
    assert message["created_at"].endswith("Z")


def test_headers_complete_a_single_message(api: Api, queue: str) -> None:
    reply = api.send(
        "POST",
        f"{queue}/messages",
        b"x",
        {
            "Penstock-Topic": "orders.öst".encode(),
            "Penstock-Priority": "7",
            "Penstock-Not-Before": "2030-01-31T12:00:00+01:00",
            "Penstock-Expires-At": "2031-01-31T12:00:00Z",
            "Penstock-Group-Key": "g",
            "Penstock-Dedup-Key": "d",
            "Penstock-Attribute-Colour": "red",
        },
    )

    assert reply.status == 201
    [message] = read(api, queue)
    assert message["topic"] == "orders.öst"
    assert message["priority"] == 7
    assert message["not_before"] == "2030-01-31T11:00:00Z"
    assert message["expires_at"] == "2031-01-31T12:00:00Z"
    assert (message["group_key"], message["dedup_key"]) == ("g", "d")
    assert message["attributes"] == {"colour": "red"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Penstock-Priority", "11"),
        ("Penstock-Priority", "high"),
        ("Penstock-Not-Before", "soon"),
        ("Penstock-Not-Before", "2030-01-31T12:00:00"),
        ("Penstock-Topic", b"\xff"),
        ("Penstock-Typo", "x"),
        ("Penstock-Attribute-", "x"),
        ("Idempotency-Key", ""),
        ("Idempotency-Key", "x" * 256),
    ],
)
def test_a_header_that_is_wrong_is_refused_by_its_name(
    api: Api, queue: str, name: str, value: str | bytes
) -> None:
    reply = api.send("POST", f"{queue}/messages", b"x", {name: value})

    assert reply.status == 400
    assert name.lower() in reply.json["detail"].lower()
    assert read(api, queue) == []


def test_a_batch_is_stored_in_its_order(api: Api, queue: str) -> None:
    reply = publish(
        api,
        queue,
        {"body": "text", "topic": "t", "priority": 3, "attributes": {"Colour": "red"}},
        {"body_base64": base64.b64encode(b"\xff\x00").decode(), "content_type": "image/x"},
        {"json": {"a": [1, 2]}},
    )

    assert reply.status == 201
    assert [one["index"] for one in reply.json["messages"]] == [0, 1, 2]
    text, binary, value = read(api, queue)
    assert (text["body"], text["topic"], text["attributes"]) == ("text", "t", {"Colour": "red"})
    assert base64.b64decode(binary["body_base64"]) == b"\xff\x00"
    assert "body" not in binary
    assert msgspec.json.decode(value["body"]) == {"a": [1, 2]}
    assert value["content_type"] == "application/json"
    assert [one["id"] for one in reply.json["messages"]] == [
        one["id"] for one in (text, binary, value)
    ]


def test_lines_are_a_batch_too(api: Api, queue: str) -> None:
    body = b'{"body": "a"}\n\n{"json": null}\r\n'

    reply = api.send(
        "POST", f"{queue}/messages", body, {"Content-Type": f"{NDJSON}; charset=utf-8"}
    )

    assert reply.status == 201
    assert [one["body"] for one in read(api, queue)] == ["a", "null"]


@pytest.mark.parametrize(
    ("message", "named"),
    [
        ({}, "messages[1]: a message has exactly one of body"),
        ({"body": "a", "json": 1}, "messages[1]: a message has exactly one of body"),
        ({"body": 1}, "messages[1].body"),
        ({"body_base64": "?"}, "messages[1]: body_base64"),
        ({"body": "a", "priority": 11}, "messages[1].priority"),
        ({"body": "a", "not_before": "2030-01-31T12:00:00"}, "messages[1].not_before"),
        ({"body": "a", "expires_at": 5}, "messages[1].expires_at"),
        ({"body": "a", "attributes": {"a": 1}}, "messages[1].attributes"),
        ({"body": "a", "colour": "red"}, "colour"),
    ],
)
def test_one_wrong_message_refuses_the_whole_batch(
    api: Api, queue: str, message: Any, named: str
) -> None:
    reply = publish(api, queue, {"body": "good"}, message)

    assert reply.status == 400
    assert named in reply.json["detail"]
    assert read(api, queue) == []


@pytest.mark.parametrize("body", [b'{"messages": []}', b"", b"{", b"\xff", b"[]", b"[" * 50_000])
def test_a_batch_that_is_none_is_refused(api: Api, queue: str, body: bytes) -> None:
    reply = api.send("POST", f"{queue}/messages", body, {"Content-Type": BATCH})

    assert reply.status == 400
    assert reply.json["code"] == "invalid_argument"


def test_a_wrong_line_is_named_by_its_number(api: Api, queue: str) -> None:
    lines = b'{"body": "a"}\n{"body": }\n'

    reply = api.send("POST", f"{queue}/messages", lines, {"Content-Type": NDJSON})

    assert reply.status == 400
    assert "line 2" in reply.json["detail"]
    assert api.send("POST", f"{queue}/messages", b"", {"Content-Type": NDJSON}).status == 400


def test_a_line_without_a_body_is_named_by_its_number_too(api: Api, queue: str) -> None:
    lines = b'\n{"body": "a"}\r\n\r\n{"topic": "b"}'
    reply = api.send("POST", f"{queue}/messages", lines, {"Content-Type": NDJSON})
    assert reply.status == 400
    assert reply.json["detail"].startswith("line 4: a message has exactly one of")


def test_an_idempotency_key_makes_a_repeated_publish_harmless(api: Api, queue: str) -> None:
    batch = [{"body": "a"}, {"body": "b", "dedup_key": "own"}]
    first = publish(api, queue, *batch, key="k").json["messages"]

    second = publish(api, queue, *batch, key="k").json["messages"]

    assert [one["duplicate"] for one in second] == [True, True]
    assert [one["id"] for one in second] == [one["id"] for one in first]
    assert [one["dedup_key"] for one in read(api, queue)] == [None, "own"]
    assert publish(api, queue, *batch, key="l").json["messages"][0]["duplicate"] is False


def test_a_key_makes_a_single_message_harmless_too(api: Api, queue: str) -> None:
    key: dict[str, str | bytes] = {"Idempotency-Key": "k"}
    first = api.send("POST", f"{queue}/messages", b"a", key).json["messages"][0]

    second = api.send("POST", f"{queue}/messages", b"a", key).json["messages"][0]

    assert second == {**first, "duplicate": True}


def test_a_key_that_was_used_for_another_number_of_messages_is_refused(
    api: Api, queue: str
) -> None:
    publish(api, queue, {"body": "a"}, {"body": "b"}, key="k")

    reply = publish(api, queue, {"body": "a"}, key="k")

    assert (reply.status, reply.json["code"]) == (400, "invalid_argument")
    assert "used for a publish of 2 messages" in reply.json["detail"]


def test_a_body_beyond_the_limit_is_refused_with_413(api: Api, queue: str) -> None:
    reply = api.send("POST", f"{queue}/messages", b"x" * (1024 * 1024 + 1))

    assert reply.status == 413
    assert reply.json["code"] == "message_too_large"
    assert api.send("POST", f"{queue}/messages", b"x" * (1024 * 1024)).status == 201


def test_a_full_queue_refuses_with_429_and_says_when_to_try_again(api: Api, queue: str) -> None:
    api.call("PATCH", queue, {"max_messages": 1})
    api.send("POST", f"{queue}/messages", b"x")

    reply = api.send("POST", f"{queue}/messages", b"x")

    assert (reply.status, reply.json["code"]) == (429, "queue_full")
    assert reply.headers["retry-after"] == "1"


def test_pages_of_messages_follow_each_other(api: Api, queue: str) -> None:
    publish(api, queue, *({"body": str(n)} for n in range(150)))
    pages = []
    at: int | None = 0

    while at is not None:
        page = api.get(f"{queue}/messages?start={at}&limit=70").json
        pages.append([one["index"] for one in page["messages"]])
        at = page["next"]

    assert [len(page) for page in pages] == [70, 70, 10]
    assert [index for page in pages for index in page] == list(range(150))
    assert api.get(f"{queue}/messages?start=999").json == {"messages": [], "next": None}


def test_a_page_of_large_messages_ends_early(api: Api, queue: str) -> None:
    for _ in range(3):
        publish(api, queue, *[{"body": "x" * 400_000}] * 40)

    page = api.get(f"{queue}/messages?limit=120").json

    assert len(page["messages"]) == page["next"] < 120


def test_messages_can_be_read_as_lines(api: Api, queue: str) -> None:
    publish(api, queue, {"body": "a"}, {"body": "b"}, {"body": "c"})

    reply = api.send("GET", f"{queue}/messages?limit=2", None, {"Accept": NDJSON})

    assert reply.headers["content-type"] == NDJSON
    assert [msgspec.json.decode(line)["body"] for line in reply.body.splitlines()] == ["a", "b"]
    assert reply.headers["penstock-next"] == "2"


def test_an_unknown_message_or_queue_is_not_found(api: Api, queue: str) -> None:
    unknown = "01a1dee3-8e5a-7000-8000-00001648cca2"

    assert api.get(f"{queue}/messages/{unknown}").json["code"] == "message_not_found"
    assert api.get(f"{queue}/messages/no-id").json["code"] == "message_not_found"
    assert api.get("/v1/queues/none/messages").json["code"] == "queue_not_found"
    assert api.send("POST", "/v1/queues/none/messages", b"x").json["code"] == "queue_not_found"
