"""Queues as tables: what a batch read gives."""

from __future__ import annotations

import zlib

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    IsNull,
    LessThan,
    LessThanOrEqual,
)

from penstock import NewMessage
from penstock.spark.fetch import Range
from penstock.spark.options import read_options
from penstock.spark.reader import PushingReader
from penstock.spark.schema import read_schema
from tests.spark.helpers import World, indexes


def test_a_queue_is_a_table_with_every_field_of_its_messages(world: World, queue: str) -> None:
    world.client.publish(
        queue,
        [
            NewMessage(
                body=b'{"n": 1}',
                content_type="application/json",
                attributes={"tenant": "acme"},
                topic="orders.new",
                priority=3,
                group_key="g",
            ),
            b"\xff\x00plain",
        ],
    )

    rows = [row.asDict() for row in world.read(subscribe=queue).orderBy("index").collect()]

    [first, second] = rows
    stored = world.client.read(queue)
    assert first["queue"] == queue
    assert (first["index"], second["index"]) == (0, 1)
    assert [row["id"] for row in rows] == [message.id for message in stored]
    assert (bytes(first["body"]), bytes(second["body"])) == (b'{"n": 1}', b"\xff\x00plain")
    assert first["content_type"] == "application/json"
    assert (first["attributes"], second["attributes"]) == ({"tenant": "acme"}, {})
    assert (first["topic"], second["topic"]) == ("orders.new", None)
    assert (first["priority"], second["priority"]) == (3, 0)
    assert (first["group_key"], second["group_key"]) == ("g", None)


def test_many_messages_are_read_in_several_partitions_each_once(world: World, queue: str) -> None:
    world.publish(queue, 25_000)

    rows = world.read(subscribe=queue, minPartitions="4", fetchRows="3000")

    assert rows.rdd.getNumPartitions() == 4
    assert indexes(rows) == list(range(25_000))
    assert rows.where("cast(body as string) = 'body 17'").count() == 1


def test_several_queues_are_read_by_name_or_by_pattern(world: World, queue: str) -> None:
    other = f"{queue}-b"
    world.client.create_queue(other)
    world.publish(queue, 3)
    world.publish(other, 2)

    by_name = world.read(subscribe=f"{queue},{other}").groupBy("queue").count().collect()
    by_pattern = world.read(subscribePattern=f"{queue}(-.*)?").groupBy("queue").count().collect()

    assert {row["queue"]: row["count"] for row in by_name} == {queue: 3, other: 2}
    assert {row["queue"]: row["count"] for row in by_pattern} == {queue: 3, other: 2}


def test_offsets_and_times_bound_a_read(world: World, queue: str) -> None:
    world.publish(queue, 10)
    late = world.client.read(queue, 7, 1)[0].created_at
    world.publish(queue, 5, first=10)

    bounded = world.read(
        subscribe=queue,
        startingOffsets=f'{{"{queue}": 4}}',
        endingOffsets=f'{{"{queue}": 8}}',
    )
    since = world.read(subscribe=queue, startingOffsets=late.isoformat())
    expected = [m.index for m in world.client.read(queue) if m.created_at >= late]

    assert indexes(bounded) == [4, 5, 6, 7]
    assert indexes(since) == expected


def test_the_body_can_be_text_or_left_out(world: World, queue: str) -> None:
    world.client.publish(queue, ["grüße".encode(), b"a\xffb"])

    text = world.read(subscribe=queue, bodyAs="string").orderBy("index")
    envelope = world.read(subscribe=queue, includeBody="false")

    assert [row["body"] for row in text.collect()] == ["grüße", "a\ufffdb"]
    assert "body" not in envelope.columns
    assert envelope.count() == 2


def test_hints_say_how_a_table_of_messages_is_best_partitioned(world: World, queue: str) -> None:
    groups = ["a", "b", None, "a"]
    world.client.publish(queue, [NewMessage(body=b"x", group_key=group) for group in groups])

    found = world.read(subscribe=queue, includePartitionHints="true").orderBy("index")
    rows = found.withColumn("expected", F.to_date("created_at")).collect()

    assert [row["day"] for row in rows] == [row["expected"] for row in rows]
    a, b, none, again = (row["bucket"] for row in rows)
    assert a == again == zlib.crc32(b"a") % 1024
    assert b != a
    assert none is None


def test_an_empty_queue_has_no_rows(world: World, queue: str) -> None:
    assert world.read(subscribe=queue).count() == 0


@pytest.mark.parametrize(
    ("filters", "planned"),
    [
        ([GreaterThanOrEqual(("index",), 40), LessThan(("index",), 43)], (40, 43)),
        ([EqualTo(("index",), 7)], (7, 8)),
        ([GreaterThan(("index",), 97), IsNull(("topic",))], (98, 100)),
        ([LessThanOrEqual(("index",), 2)], (0, 3)),
        ([EqualTo(("id",), "no-such-id")], None),
        ([EqualTo(("id",), "no such/id?")], None),
        ([EqualTo(("id",), "")], None),
        ([EqualTo(("topic",), "t")], (0, 100)),
    ],
)
def test_conditions_that_are_pushed_down_narrow_what_is_read(
    world: World, queue: str, filters: list[Filter], planned: tuple[int, int] | None
) -> None:
    world.publish(queue, 100)
    options = read_options({**world.options, "subscribe": queue}, "batch")
    reader = PushingReader(options, read_schema(options))

    left = list(reader.pushFilters(filters))

    # Spark applies all of them once more: a range is no proof.
    assert left == filters
    assert reader.partitions() == ([] if planned is None else [Range(queue, *planned)])


def test_a_condition_on_the_id_or_the_time_is_pushed_down(world: World, queue: str) -> None:
    world.publish(queue, 30)
    message = world.client.read(queue, 12, 1)[0]

    rows = world.read(subscribe=queue, pushFilters="true")

    assert indexes(rows.where("index >= 28 and topic is null")) == [28, 29]
    assert indexes(rows.where(F.col("id") == message.id)) == [12]
    assert indexes(rows.where("id = 'no-such-id'")) == []
    assert indexes(rows.where(F.col("created_at") < F.lit(message.created_at))) == [
        m.index for m in world.client.read(queue) if m.created_at < message.created_at
    ]
    assert indexes(rows.where(F.col("created_at") <= F.lit(message.created_at))) == [
        m.index for m in world.client.read(queue) if m.created_at <= message.created_at
    ]


def test_a_condition_may_have_the_last_moment_there_is(world: World, queue: str) -> None:
    world.publish(queue, 3)

    rows = world.read(subscribe=queue, pushFilters="true")

    last = "timestamp '9999-12-31 23:59:59.999999'"
    assert indexes(rows.where(f"created_at <= {last}")) == [0, 1, 2]
    assert indexes(rows.where(f"created_at > {last}")) == []


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [
        ('{"%s": 3}', '{"%s": 2}', "the end, 2, is before the start, 3"),
        ("2030-01-02T00:00:00Z", "2030-01-01T00:00:00Z", "the end is before the start"),
        ("9999-12-31T23:59:59-05:00", "latest", "startingOffsets is '9999-12-31T23:59:59-05:00'"),
        ("earliest", "0001-01-01T00:00:00+05:00", "endingOffsets is '0001-01-01T00:00:00"),
        ('{"%s": 6}', "latest", "startingOffsets is 6 for queue .*, which ends before 5"),
        ("earliest", '{"%s": 6}', "endingOffsets is 6 for queue .*, which ends before 5"),
    ],
)
def test_a_read_that_cannot_have_rows_is_refused(
    world: World, queue: str, start: str, end: str, words: str
) -> None:
    world.publish(queue, 5)
    offsets = {"startingOffsets": start, "endingOffsets": end}
    given = {name: text.replace("%s", queue) for name, text in offsets.items()}

    with pytest.raises(PySparkException, match=words):
        world.read(subscribe=queue, **given).collect()


def test_a_queue_that_tells_no_events_is_named(world: World, queue: str) -> None:
    with pytest.raises(PySparkException, match=f"no events of queue '{queue}': .* turn its"):
        world.read(subscribe=queue, stream="events").collect()


def test_messages_that_are_gone_are_named_unless_loss_is_accepted(world: World, queue: str) -> None:
    world.publish(queue, 5)
    world.client.purge_queue(queue)
    world.publish(queue, 2, first=5)
    options = {"subscribe": queue, "startingOffsets": f'{{"{queue}": 1}}'}

    with pytest.raises(PySparkException, match=f"of queue '{queue}' 4 messages are gone.*1 to 4"):
        world.read(**options).collect()
    assert indexes(world.read(**options, failOnDataLoss="false")) == [5, 6]
