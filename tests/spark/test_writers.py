"""Rows into queues: what arrives, and that nothing arrives twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.spark.versions import start_to_the_end
from tests.spark.helpers import World


def write(rows: DataFrame, world: World, **options: str) -> None:
    rows.write.format("penstock").mode("append").options(**{**world.options, **options}).save()


def bodies(world: World, queue: str) -> list[bytes]:
    found: list[bytes] = []
    while page := world.client.read(queue, len(found), 1000):
        found += [message.body for message in page]
    return found


def numbered(world: World, count: int, partitions: int = 2) -> DataFrame:
    rows = world.spark.range(0, count, 1, partitions)
    return rows.select(F.concat(F.lit("row "), F.col("id").cast("string")).alias("body"))


def test_rows_become_messages_with_every_column(world: World, queue: str) -> None:
    rows = world.spark.sql(
        """select cast('x' as binary) body, 'text/plain' content_type, map('a', 'b') attributes,
           'news' topic, 4 priority, 'g' group_key, 'd' dedup_key, timestamp'2000-01-01' not_before
           union all select cast('y' as binary), null, null, null, null, null, null, null"""
    )

    write(rows.coalesce(1), world, queue=queue)

    first, second = world.client.read(queue)
    assert (first.body, first.content_type, first.attributes) == (b"x", "text/plain", {"a": "b"})
    assert (first.topic, first.priority, first.group_key) == ("news", 4, "g")
    assert (second.body, second.topic, second.priority, second.attributes) == (b"y", None, 0, {})


def test_many_rows_go_in_chunks_from_every_task(world: World, queue: str) -> None:
    write(numbered(world, 25_000), world, queue=queue, chunkRows="4000")

    assert sorted(bodies(world, queue)) == sorted(b"row %d" % n for n in range(25_000))


def test_large_rows_are_cut_by_their_bytes(world: World, queue: str) -> None:
    rows = world.spark.range(0, 40, 1, 1).select(F.repeat(F.lit("x"), 900_000).alias("body"))

    write(rows, world, queue=queue)

    assert world.client.queue_stats(queue).messages == 40


def test_each_row_may_name_its_queue(world: World, queue: str) -> None:
    other = f"{queue}-b"
    world.client.create_queue(other)
    rows = world.spark.sql(
        f"select * from values ('{queue}', '1'), ('{other}', '2'), ('{queue}', '3') t(queue, body)"
    )

    write(rows.coalesce(1), world)

    assert bodies(world, queue) == [b"1", b"3"]
    assert bodies(world, other) == [b"2"]


def test_a_write_with_a_key_can_be_repeated(world: World, queue: str) -> None:
    for _ in range(2):
        write(numbered(world, 100), world, queue=queue, idempotencyKey="import-7")

    assert len(bodies(world, queue)) == 100


def test_rows_with_keys_of_their_own_may_come_in_another_order(world: World, queue: str) -> None:
    """As after a shuffle."""
    rows = numbered(world, 10, 1).withColumn("dedup_key", F.col("body"))
    options = {"queue": queue, "idempotencyKey": "import-8", "chunkRows": "5"}
    # Given a write that failed after its first chunk
    write(rows.limit(5), world, **options)

    write(rows.orderBy(F.desc("body")).coalesce(1), world, **options)

    assert sorted(bodies(world, queue)) == [b"row %d" % n for n in range(10)]


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("select 'a' text", "the column text cannot be written"),
        ("select 'a' topic", "there is no column body"),
        ("select 1 body", "the column body is int: make it binary or string"),
        ("select 'a' body, 'q' queue", "give exactly one, the option queue or a column queue"),
        ("select cast(null as string) body", "a row has no body"),
    ],
)
def test_rows_that_are_no_messages_are_refused_by_column(
    world: World, queue: str, sql: str, words: str
) -> None:
    with pytest.raises(PySparkException, match=words):
        write(world.spark.sql(sql), world, queue=queue)


def test_a_row_that_names_no_queue_is_refused(world: World) -> None:
    rows = world.spark.sql("select 'a' body, 'no queue?' queue")

    with pytest.raises(PySparkException, match=r"InvalidArgument: .*'no queue\?'"):
        write(rows, world)


def test_a_queue_cannot_be_overwritten(world: World, queue: str) -> None:
    writer = numbered(world, 1).write.format("penstock").options(**world.options, queue=queue)

    with pytest.raises(PySparkException, match="a queue cannot be overwritten"):
        writer.mode("overwrite").save()


def test_a_stream_into_a_queue_publishes_nothing_twice(
    world: World, queue: str, tmp_path: Path
) -> None:
    target = f"{queue}-out"
    world.client.create_queue(target)
    world.publish(queue, 50)
    checkpoint = tmp_path / "checkpoint"

    def run() -> None:
        query = start_to_the_end(
            world.stream(subscribe=queue, maxOffsetsPerTrigger="20")
            .select("body")
            .writeStream.format("penstock")
            .options(**world.options, queue=target)
            .option("checkpointLocation", str(checkpoint))
        )
        query.awaitTermination()

    run()
    # Given a crash after the rows were published and before Spark noted it: the commit is missing.
    newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    newest.unlink()
    (checkpoint / "commits" / f".{newest.name}.crc").unlink(missing_ok=True)
    run()

    assert bodies(world, target) == [b"body %d" % n for n in range(50)]
