"""Lifecycle events over the native API."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tests.http.v1.conftest import Api, Reply
from tests.http.v1.test_arrow import ARROW
from tests.http.v1.test_messages import NDJSON, publish


@pytest.fixture
def observed(api: Api, queue: str) -> str:
    assert api.call("PATCH", queue, {"events": True}).status == 200
    return queue


def live(api: Api, queue: str) -> list[str]:
    """Two messages: one acked, one nacked. Returns their ids."""
    published = publish(api, queue, {"body": "a", "topic": "t"}, {"body": "b"}).json["messages"]
    reply = api.post(f"{queue}/subscriptions/default/receive", {"limit": 2})
    first, second = (one["receipt"] for one in reply.json["deliveries"])
    settle = {"ack": [first], "nack": [{"targets": [second], "reason": "broken"}]}
    assert api.post(f"{queue}/subscriptions/default/settle", settle).status == 200
    return [one["id"] for one in published]


def ask(api: Api, queue: str, accept: str, query: str = "") -> Reply:
    return api.send("GET", f"{queue}/events{query}", None, {"Accept": accept})


def test_every_row_says_what_happened_to_one_message(api: Api, observed: str) -> None:
    first, second = live(api, observed)

    page = api.get(f"{observed}/events").json

    assert page["next"] is None
    rows: list[dict[str, Any]] = page["events"]
    assert [(row["event"], row["index"], row["id"]) for row in rows] == [
        ("published", 0, first),
        ("published", 1, second),
        ("delivered", 0, first),
        ("delivered", 1, second),
        ("acked", 0, first),
        ("nacked", 1, second),
    ]
    assert [row["events_index"] for row in rows] == [0, 0, 1, 1, 2, 2]
    assert [row["topic"] for row in rows[:2]] == ["t", None]
    assert {row["subscription"] for row in rows[2:]} == {"default"}
    assert (rows[5]["deliveries"], rows[5]["reason"]) == (1, "broken")
    assert {row["queue"] for row in rows} == {observed.rpartition("/")[2]}
    message = api.get(f"{observed}/messages/{first}").json
    assert rows[0]["published_at"] == rows[0]["at"] == message["created_at"]
    assert rows[4]["published_at"] == message["created_at"] <= rows[4]["at"]


def test_lines_and_columns_hold_the_same_rows(api: Api, observed: str) -> None:
    live(api, observed)
    expected = api.get(f"{observed}/events").json["events"]

    lines = ask(api, observed, NDJSON)
    table = pa.ipc.open_stream(ask(api, observed, ARROW).body).read_all()

    assert [msgspec.json.decode(line) for line in lines.body.splitlines()] == expected
    table.validate(full=True)
    assert table.schema == pa.schema(
        [
            ("queue", pa.string()),
            ("events_index", pa.int64()),
            ("index", pa.int64()),
            ("id", pa.string()),
            ("event", pa.string()),
            ("subscription", pa.string()),
            ("deliveries", pa.int32()),
            ("reason", pa.string()),
            ("topic", pa.string()),
            ("published_at", pa.timestamp("us", "UTC")),
            ("at", pa.timestamp("us", "UTC")),
        ]
    )
    rows = table.to_pylist()
    for row in rows:
        for name in ("published_at", "at"):
            row[name] = msgspec.json.decode(msgspec.json.encode(row[name]))
    assert rows == expected


@pytest.mark.parametrize("accept", ["application/json", NDJSON, ARROW])
def test_ranges_are_of_the_messages_that_tell(api: Api, observed: str, accept: str) -> None:
    for _ in range(5):
        publish(api, observed, {"body": "x"}, {"body": "y"})

    reply = ask(api, observed, accept, "?start=1&end=4&limit=2")

    if accept == ARROW:
        indexes = pa.ipc.open_stream(reply.body).read_all()["events_index"].to_pylist()
    elif accept == NDJSON:
        indexes = [msgspec.json.decode(line)["events_index"] for line in reply.body.splitlines()]
    else:
        indexes = [row["events_index"] for row in reply.json["events"]]
        assert reply.json["next"] == 3
    assert indexes == [1, 1, 2, 2]
    assert reply.headers.get("penstock-next") in (None, "3")


def test_a_command_on_very_many_messages_is_told_in_several_batches(
    api: Api, observed: str
) -> None:
    for _ in range(3):
        publish(api, observed, *[{"body": ""}] * 5000)
    api.post(f"{observed}/subscriptions/default/settle", {"ack_up_to": 15_000})

    table = list(pa.ipc.open_stream(ask(api, observed, ARROW).body))

    assert sum(batch.num_rows for batch in table) == 30_000
    acked = [i for b in table for i, e in zip(*_columns(b), strict=True) if e == "acked"]
    assert acked == list(range(15_000))
    for _ in range(9):
        publish(api, observed, {"body": "x"})
    page = api.get(f"{observed}/events?limit=1000").json
    assert page["next"] == 8, "a page ends early"


def _columns(batch: pa.RecordBatch) -> tuple[list[int], list[str]]:
    return batch["index"].to_pylist(), batch["event"].to_pylist()


def test_a_queue_that_tells_nothing_says_how_to_change_that(api: Api, queue: str) -> None:
    reply = api.get(f"{queue}/events")

    assert (reply.status, reply.json["code"]) == (404, "queue_not_found")
    assert "events" in reply.json["detail"]
    assert api.get("/v1/queues/none/events").status == 404
    assert api.send("POST", f"{queue}-events/messages", b"x").status == 404


def test_nobody_else_publishes_there(api: Api, observed: str) -> None:
    reply = api.send("POST", f"{observed}-events/messages", b"x")

    assert (reply.status, reply.json["code"]) == (409, "reserved_queue")
    assert api.call("DELETE", f"{observed}-events").json["code"] == "reserved_queue"
