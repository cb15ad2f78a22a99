"""Arrow IPC streams over the native API, and lines of any number."""

from __future__ import annotations

import base64
import http.client
import sys
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from penstock.broker import Broker
from penstock.errors import QueueNotFound
from penstock.http.v1.streams import Range
from penstock.storage.embedded import EmbeddedStore
from penstock.storage.registry import open_store
from tests.http.in_process import InProcess, application
from tests.http.v1.conftest import ADMIN, Api, Reply, Server
from tests.http.v1.test_messages import NDJSON, publish

ARROW = "application/vnd.apache.arrow.stream"


def stream(batch: pa.RecordBatch, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, **options) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def send(api: Api, queue: str, data: bytes) -> Reply:
    return api.send("POST", f"{queue}/messages", data, {"Content-Type": ARROW})


def send_columns(api: Api, queue: str, **columns: pa.Array) -> Reply:
    return send(api, queue, stream(pa.record_batch(columns)))


def read(api: Api, queue: str, query: str = "") -> pa.Table:
    reply = api.send("GET", f"{queue}/messages{query}", None, {"Accept": ARROW})
    assert reply.status == 200
    assert reply.headers["content-type"] == ARROW
    return pa.ipc.open_stream(reply.body).read_all()


def test_messages_come_as_columns(api: Api, queue: str) -> None:
    publish(
        api,
        queue,
        {
            "body": "a",
            "content_type": "text/plain",
            "topic": "t",
            "priority": 3,
            "group_key": "g",
            "attributes": {"colour": "red", "size": "1"},
        },
        {"body_base64": "/wA="},
    )
    publish(api, queue, {"body": ""})
    pages = api.get(f"{queue}/messages").json["messages"]

    table = read(api, queue)

    assert table.schema == pa.schema(
        [
            ("queue", pa.string()),
            ("index", pa.int64()),
            ("id", pa.string()),
            ("body", pa.binary()),
            ("content_type", pa.string()),
            ("attributes", pa.map_(pa.string(), pa.string())),
            ("topic", pa.string()),
            ("priority", pa.int32()),
            ("group_key", pa.string()),
            ("created_at", pa.timestamp("us", "UTC")),
        ]
    )
    table.validate(full=True)
    rows = table.to_pylist(maps_as_pydicts="strict")
    assert [row.pop("body") for row in rows] == [b"a", b"\xff\x00", b""]
    assert {row.pop("queue") for row in rows} == {queue.rpartition("/")[2]}
    for row, page in zip(rows, pages, strict=True):
        row["created_at"] = row["created_at"].isoformat().replace("+00:00", "Z")
        assert row == {name: page[name] for name in row}


def test_plain_messages_come_with_their_defaults(api: Api, queue: str) -> None:
    send_columns(api, queue, body=pa.array([b"x", b"y"]))

    rows = read(api, queue).to_pylist(maps_as_pydicts="strict")

    for row in rows:
        assert (row["content_type"], row["attributes"]) == ("application/octet-stream", {})
        assert (row["topic"], row["priority"], row["group_key"]) == (None, 0, None)


@pytest.mark.parametrize(
    ("query", "expected", "following"),
    [
        ("", range(25), None),
        ("?start=7&end=12", range(7, 12), None),
        ("?end=999", range(25), None),
        ("?limit=20", range(20), "20"),
        ("?start=3&end=10&limit=4", range(3, 7), "7"),
        ("?start=5&limit=20", range(5, 25), None),
        ("?start=25", range(0), None),
        ("?start=4&end=4", range(0), None),
    ],
)
@pytest.mark.parametrize("kind", [ARROW, NDJSON])
def test_a_stream_is_of_the_range_that_was_asked_for(
    api: Api, queue: str, kind: str, query: str, expected: range, following: str | None
) -> None:
    for _ in range(5):
        publish(api, queue, *[{"body": "x"}] * 5)

    reply = api.send("GET", f"{queue}/messages{query}", None, {"Accept": kind})

    assert reply.headers.get("penstock-next") == following
    if kind == ARROW:
        indexes = pa.ipc.open_stream(reply.body).read_all()["index"].to_pylist()
    else:
        indexes = [msgspec.json.decode(line)["index"] for line in reply.body.splitlines()]
    assert indexes == list(expected)


def test_a_page_may_have_an_end_too(api: Api, queue: str) -> None:
    publish(api, queue, *[{"body": "x"}] * 9)

    page = api.get(f"{queue}/messages?start=2&end=8&limit=4").json
    rest = api.get(f"{queue}/messages?start={page['next']}&end=8&limit=4").json

    assert [one["index"] for one in page["messages"] + rest["messages"]] == list(range(2, 8))
    assert rest["next"] is None


@pytest.mark.parametrize(
    "query", ["?start=5&end=4", "?end=-1", "?limit=0", "?include_body=maybe", "?start=x"]
)
def test_a_range_that_is_none_is_refused(api: Api, queue: str, query: str) -> None:
    reply = api.send("GET", f"{queue}/messages{query}", None, {"Accept": ARROW})

    assert (reply.status, reply.json["code"]) == (400, "invalid_argument")


def test_bodies_can_be_left_out(api: Api, queue: str) -> None:
    publish(api, queue, {"body": "x", "topic": "t"})

    table = read(api, queue, "?include_body=false")
    page = api.get(f"{queue}/messages?include_body=false").json
    lines = api.send("GET", f"{queue}/messages?include_body=false", None, {"Accept": NDJSON})

    assert "body" not in table.schema.names
    assert table["topic"].to_pylist() == ["t"]
    assert "body" not in page["messages"][0]
    assert "body" not in msgspec.json.decode(lines.body)


def test_a_long_stream_comes_in_batches_and_has_no_limit(api: Api, queue: str) -> None:
    for _ in range(3):
        send_columns(api, queue, body=pa.array([b"x" * 200] * 5000))

    reply = api.send("GET", f"{queue}/messages", None, {"Accept": ARROW})

    batches = list(pa.ipc.open_stream(reply.body))
    assert sum(batch.num_rows for batch in batches) == 15_000
    assert len(batches) > 1
    assert max(batch.num_rows for batch in batches) <= 10_000
    indexes = [index for batch in batches for index in batch["index"].to_pylist()]
    assert indexes == list(range(15_000))


def test_dead_letters_can_be_read_as_columns_and_lines(api: Api, queue: str) -> None:
    [published] = publish(api, queue, {"body": "bad"}).json["messages"]
    api.call("PATCH", f"{queue}/subscriptions/default", {"max_deliveries": 1})
    [one] = api.post(f"{queue}/subscriptions/default/receive").json["deliveries"]
    nack = {"nack": [{"targets": [one["receipt"]], "reason": "broken"}]}
    api.post(f"{queue}/subscriptions/default/settle", nack)

    [row] = read(api, f"{queue}-dlq").to_pylist()
    lines = api.send("GET", f"{queue}-dlq/messages", None, {"Accept": NDJSON})

    assert (row["id"], row["body"]) == (published["id"], b"bad")
    assert msgspec.json.decode(lines.body)["dead_letter"]["reason"] == "broken"


def test_an_unknown_queue_is_told_before_the_stream_begins(api: Api) -> None:
    reply = api.send("GET", "/v1/queues/none/messages", None, {"Accept": ARROW})

    assert (reply.status, reply.json["code"]) == (404, "queue_not_found")


# Publishing.


def test_rows_are_published_with_all_that_a_message_may_have(api: Api, queue: str) -> None:
    later = datetime(2030, 1, 31, 12, tzinfo=UTC)
    reply = send_columns(
        api,
        queue,
        body=pa.array(["a", "ö"], pa.string()),
        content_type=pa.array(["text/plain", None]),
        attributes=pa.array([[("k", "v")], None], pa.map_(pa.string(), pa.string())),
        topic=pa.array(["t", None]),
        priority=pa.array([7, None], pa.int8()),
        group_key=pa.array(["g", None]),
        dedup_key=pa.array(["d", None]),
        not_before=pa.array([later, None], pa.timestamp("ns", "Europe/Vienna")),
        expires_at=pa.nulls(2),
    )

    assert reply.status == 201
    assert [one["index"] for one in reply.json["messages"]] == [0, 1]
    first, second = api.get(f"{queue}/messages").json["messages"]
    assert (first["body"], first["content_type"], first["topic"]) == ("a", "text/plain", "t")
    assert (first["attributes"], first["priority"]) == ({"k": "v"}, 7)
    assert (first["group_key"], first["dedup_key"]) == ("g", "d")
    assert first["not_before"] == "2030-01-31T12:00:00Z"
    assert (second["body"], second["content_type"]) == ("ö", "application/octet-stream")
    assert second["priority"] == 0


def test_the_zone_of_a_column_need_not_be_known_here(api: Api, queue: str) -> None:
    later = pa.array([1_893_456_000], pa.timestamp("s", "Mars/Olympus_Mons"))

    reply = send_columns(api, queue, body=pa.array([b"x"]), not_before=later)

    assert reply.status == 201
    [message] = api.get(f"{queue}/messages").json["messages"]
    assert message["not_before"] == "2030-01-01T00:00:00Z"


def test_several_batches_of_a_stream_are_one_publish(api: Api, queue: str) -> None:
    batch = pa.record_batch({"body": pa.array([b"x"] * 3, pa.large_binary())})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
        writer.write_batch(batch)

    reply = send(api, queue, bytes(sink.getvalue()))

    assert [one["index"] for one in reply.json["messages"]] == list(range(6))


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ({"topic": pa.array(["t"])}, "no column body"),
        ({"body": pa.array([b"x", None])}, "a body is null"),
        ({"body": pa.array([1])}, "the column body is int64"),
        ({"body": pa.array([b"x"]).dictionary_encode()}, "the column body is dictionary"),
        ({"body": pa.array([b"x"], pa.binary_view())}, "the column body is binary_view"),
        ({"body": pa.array([b"x"]), "colour": pa.array(["red"])}, "'colour' is unknown"),
        ({"body": pa.array([b"x"]), "priority": pa.array([11])}, "row 0: priority is 11"),
        ({"body": pa.array([b"x"]), "priority": pa.array(["high"])}, "priority is string"),
        (
            {"body": pa.array([b"x"]), "not_before": pa.array([0], pa.timestamp("us"))},
            "use a timestamp with a zone",
        ),
        *(
            ({"body": pa.array([b"x"]), "expires_at": far}, "expires_at has a time that is out of")
            for far in (
                # Nanoseconds that were taken for something else; for the last one, 64 bits are few.
                pa.array([1_893_456_000 * 10**9], pa.timestamp("us", "UTC")),
                pa.array([1_893_456_000 * 10**9], pa.timestamp("s", "UTC")),
            )
        ),
        ({"body": pa.array([], pa.binary())}, "no messages"),
    ],
)
def test_rows_that_are_wrong_are_refused_by_name(
    api: Api, queue: str, columns: dict[str, pa.Array], named: str
) -> None:
    reply = send_columns(api, queue, **columns)

    assert (reply.status, reply.json["code"]) == (400, "invalid_argument")
    assert named in reply.json["detail"]
    assert api.get(f"{queue}/messages").json["messages"] == []


def test_what_is_no_stream_is_refused(api: Api, queue: str) -> None:
    whole = stream(pa.record_batch({"body": pa.array([b"x" * 50] * 3)}))
    damaged = [b"", b"{}", b"\xff" * 100, whole[:-60], whole[:40]]

    for data in damaged:
        reply = send(api, queue, data)
        assert (reply.status, reply.json["code"]) == (400, "invalid_argument"), data
    for at in range(0, len(whole), 7):
        # A wrong byte may be within a body, where it is nobody's business.
        data = whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :]
        assert send(api, queue, data).status in (201, 400, 413), at


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_compressed_batch_is_refused_for_it_may_be_any_size(
    api: Api, queue: str, codec: str
) -> None:
    batch = pa.record_batch({"body": pa.array([b"x" * 1000] * 100)})

    reply = send(api, queue, stream(batch, options=pa.ipc.IpcWriteOptions(compression=codec)))

    assert reply.status == 400
    assert "compress" in reply.json["detail"]


def test_more_rows_than_a_batch_may_have_are_refused(api: Api, queue: str) -> None:
    reply = send_columns(api, queue, body=pa.array([b""] * 10_001))

    assert (reply.status, reply.json["code"]) == (413, "batch_too_large")


def test_without_pyarrow_the_answer_names_the_extra(
    api: Api, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("arrow_columns", "arrow_rows"):
        monkeypatch.setitem(sys.modules, f"penstock.http.v1.{name}", None)

    reading = api.send("GET", f"{queue}/messages", None, {"Accept": ARROW})
    publishing = send(api, queue, b"")

    for reply in (reading, publishing):
        assert (reply.status, reply.json["code"]) == (406, "missing_extra")
        assert "penstock[arrow]" in reply.json["detail"]


# What happens to a stream on its way.


async def _parts(app: InProcess, path: str, leave_after: int | None) -> list[bytes]:
    return await app.stream("GET", path, leave_after=leave_after, accept=ARROW)


async def _filled() -> Broker:
    broker = Broker(await open_store("memory:"))
    await broker.create_queue("q")
    for _ in range(20):
        await broker.publish("q", [b"x" * 100_000] * 10)
    return broker


async def test_a_stream_has_what_is_kept_aside_for_a_subscription() -> None:
    store = await open_store("memory:")
    assert isinstance(store, EmbeddedStore)
    async with Broker(store) as broker, application(broker) as app:
        await broker.create_queue("q", retention_messages=2)
        await broker.publish("q", [b"%d" % n for n in range(10)])
        [_, _, *others] = await broker.receive("q", limit=10)
        await broker.ack("q", others)
        await store.tick()
        assert (await broker.queue_stats("q")).first_index == 8

        parts = await _parts(app, "/v1/queues/q/messages", None)

    table = pa.ipc.open_stream(b"".join(parts)).read_all()
    assert table["index"].to_pylist() == [0, 1, 8, 9]


async def test_a_client_that_goes_away_ends_the_work() -> None:
    async with await _filled() as broker, application(broker) as app:
        every = await _parts(app, "/v1/queues/q/messages", None)
        some = await _parts(app, "/v1/queues/q/messages", 5)

    assert sum(map(len, every)) > 20_000_000
    assert sum(map(len, some)) < 5_000_000


async def test_a_queue_made_anew_does_not_go_on_where_the_old_one_was() -> None:
    async with await _filled() as broker:
        rows = Range(broker, "q", 0, 200)
        await rows.read()
        await broker.delete_queue("q")
        await broker.create_queue("q")

        with pytest.raises(QueueNotFound):
            await rows.read()


def test_a_client_that_reads_late_gets_all_of_it_and_keeps_nobody_waiting(
    api: Api, queue: str, server: Server
) -> None:
    # Given streams of more than the sockets hold, more of them than there are threads
    for _ in range(20):
        send_columns(api, queue, body=pa.array([b"x" * 100_000] * 10))
    secret = base64.b64encode(ADMIN.encode()).decode()
    headers = {"Accept": ARROW, "Authorization": f"Basic {secret}"}
    connections = [http.client.HTTPConnection("127.0.0.1", server.port, timeout=15) for _ in "1234"]
    responses = []
    for connection in connections:
        connection.request("GET", f"{queue}/messages", headers=headers)
        responses.append(connection.getresponse())

    # When another one is read, and then these are, the last first
    assert read(api, queue, "?limit=3").num_rows == 3
    tables = [pa.ipc.open_stream(each.read()).read_all() for each in reversed(responses)]

    # Then each is whole, and its connection can be used again
    assert [table["index"].to_pylist() for table in tables] == [list(range(200))] * 4
    for connection in connections:
        connection.request("GET", queue, headers={**headers, "Accept": "*/*"})
        assert connection.getresponse().status == 200
        connection.close()


def test_a_stream_that_cannot_go_on_is_cut_and_not_ended(
    api: Api, queue: str, server: Server
) -> None:
    # Given a stream that is being read
    for _ in range(20):
        send_columns(api, queue, body=pa.array([b"x" * 100_000] * 10))
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=15)
    secret = base64.b64encode(ADMIN.encode()).decode()
    headers = {"Accept": ARROW, "Authorization": f"Basic {secret}"}
    connection.request("GET", f"{queue}/messages", headers=headers)
    response = connection.getresponse()
    assert response.read(1000)

    # When its queue is deleted
    assert api.call("DELETE", queue).status == 204

    # Then the answer is not whole, and cannot be taken for that
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        response.read()
    connection.close()
