"""Sparks before 4.2 do not say where a batch begins. Any Spark asks so, of a reader that wants it.

So the session of this suite runs the same path, and `SPARK_WITH_ICEBERG` an old Spark itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

import pyspark_penstock
from penstock.client import Client
from penstock.spark.errors import DataLoss
from penstock.spark.options import read_options
from penstock.spark.schema import read_schema
from penstock.spark.stream_reader import PenstockStreamReader
from penstock.spark.versions import Unaided
from tests.spark.helpers import World

WRAPPER = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"


class OldSource(pyspark_penstock.DefaultSource):
    """The format, as Sparks before 4.2 see it."""

    @classmethod
    def name(cls) -> str:
        return "penstock-unaided"

    def streamReader(self, schema: object) -> Unaided:  # noqa: N802
        options = read_options(self.options, "stream")
        return Unaided(PenstockStreamReader(options, read_schema(options)))


@pytest.fixture
def old(world: World) -> Iterator[World]:
    world.spark.dataSource.register(OldSource)
    yield world
    world.spark.conf.unset(WRAPPER)


def unaided(world: World, *, to_the_end: bool = False, **options: str) -> Unaided:
    """As Spark makes one for each run of a query."""
    checked = read_options({**world.options, "subscription": "stream", **options}, "stream")
    reader = PenstockStreamReader(checked, read_schema(checked))
    return Unaided(reader, to_the_end=to_the_end)


def begin(
    world: World, directory: Path, batches: list[list[int]], **options: str
) -> StreamingQuery:
    """Into a list of the indexes of each batch; a body `broken` fails it."""
    every = {**world.options, "subscription": "stream", **options}
    rows = world.spark.readStream.format("penstock-unaided").options(**every).load()

    def land(batch: DataFrame, _number: int) -> None:
        found = batch.select("index", "body").collect()
        if any(bytes(row["body"]) == b"broken" for row in found):
            raise RuntimeError("the sink is broken")
        batches.append(sorted(row["index"] for row in found))

    writer = rows.writeStream.foreachBatch(land)
    return writer.option("checkpointLocation", str(directory)).start()


def finish(query: StreamingQuery) -> None:
    try:
        query.processAllAvailable()
    finally:
        query.stop()


def test_batches_keep_to_the_limit_and_the_floor_follows_them_to_the_end(
    old: World, queue: str, tmp_path: Path
) -> None:
    old.publish(queue, 100)
    batches: list[list[int]] = []

    finish(begin(old, tmp_path, batches, subscribe=queue, maxOffsetsPerTrigger="40"))

    assert [len(batch) for batch in batches] == [40, 40, 20]
    assert old.floor(queue) == 100

    # And a run from the checkpoint goes on from there
    old.publish(queue, 50, first=100)
    finish(begin(old, tmp_path, batches, subscribe=queue, maxOffsetsPerTrigger="40"))

    assert [index for batch in batches for index in batch] == list(range(150))
    assert old.floor(queue) == 150


def test_a_batch_that_failed_moves_no_floor_and_is_run_again_as_it_was(
    old: World, client: Client, queue: str, tmp_path: Path
) -> None:
    old.publish(queue, 5)
    batches: list[list[int]] = []
    finish(begin(old, tmp_path, batches, subscribe=queue))
    client.publish(queue, [b"broken", b"fine"])

    with pytest.raises(PySparkException, match="the sink is broken"):
        finish(begin(old, tmp_path, batches, subscribe=queue))

    assert old.floor(queue) == 5
    # When more has come since, and the same batch comes first,
    old.publish(queue, 3, first=7)
    again: list[list[int]] = []
    rows = old.spark.readStream.format("penstock-unaided")
    stream = rows.options(**old.options, subscribe=queue, subscription="stream").load()
    writer = stream.writeStream.foreachBatch(
        lambda batch, _: again.append(sorted(row["index"] for row in batch.collect()))
    )
    finish(writer.option("checkpointLocation", str(tmp_path)).start())

    assert again == [[5, 6], [7, 8, 9]]
    assert old.floor(queue) == 10


def test_one_batch_to_the_end_is_finished_by_the_next_start(
    old: World, queue: str, tmp_path: Path
) -> None:
    """Spark makes `availableNow` one batch, and does not say when that is committed."""
    old.publish(queue, 5)
    every = {**old.options, "subscription": "stream", "subscribe": queue}

    def run() -> None:
        rows = old.spark.readStream.format("penstock-unaided").options(**every).load()
        writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
        writer.trigger(availableNow=True).start().awaitTermination()

    run()
    assert old.floor(queue) == 0
    run()
    assert old.floor(queue) == 5


@pytest.mark.parametrize("is_new", [True, False])
def test_an_end_that_is_asked_for_too_early_is_refused(
    old: World, queue: str, tmp_path: Path, is_new: bool
) -> None:
    """Spark's stand-in for `availableNow` asks for it before it says where the stream stands."""
    old.publish(queue, 5)
    batches: list[list[int]] = []
    if not is_new:
        finish(begin(old, tmp_path, batches, subscribe=queue))
        old.publish(queue, 5, first=5)
    old.spark.conf.set(WRAPPER, "true")
    every = {**old.options, "subscription": "stream", "subscribe": queue}
    rows = old.spark.readStream.format("penstock-unaided").options(**every).load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path))

    with pytest.raises(PySparkException, match=f"unset {WRAPPER}, or use Spark 4.2"):
        writer.trigger(availableNow=True).start().awaitTermination()

    assert old.floor(queue) == (0 if is_new else 5)


def test_the_latest_is_the_servers_to_say_also_when_the_end_is_asked_for_first(
    world: World, queue: str
) -> None:
    world.publish(queue, 3)
    reader = unaided(world, subscribe=queue, startingOffsets="latest")

    # When Spark asks for the end, and messages come before it asks for the beginning
    end = reader.latestOffset()
    world.publish(queue, 2, first=3)

    assert end == reader.initialOffset() == {queue: 3}
    assert reader.partitions({queue: 3}, end) == []
    assert reader.latestOffset() == {queue: 5}


def test_an_option_does_not_move_the_floor_of_a_stream_that_has_a_checkpoint(
    world: World, queue: str
) -> None:
    world.publish(queue, 20)
    world.client.create_subscription(queue, "stream", start=4)
    reader = unaided(world, subscribe=queue, startingOffsets=f'{{"{queue}": 15}}')

    # Given that the newest batch ended at 12
    assert reader.partitions({queue: 12}, {queue: 12}) == []

    assert reader.latestOffset() == {queue: 20}
    assert world.floor(queue) == 12


def test_a_run_to_the_end_reads_nothing_that_came_later(world: World, queue: str) -> None:
    world.publish(queue, 5)
    reader = unaided(world, to_the_end=True, subscribe=queue, maxOffsetsPerTrigger="3")

    first = reader.latestOffset()
    reader.partitions(reader.initialOffset(), first)
    world.publish(queue, 5, first=5)
    second = reader.latestOffset()
    reader.partitions(first, second)

    assert (first, second, reader.latestOffset()) == ({queue: 3}, {queue: 5}, {queue: 5})
    assert world.floor(queue) == 5


def test_a_queue_that_ends_before_the_checkpoint_is_told(world: World, queue: str) -> None:
    world.publish(queue, 5)
    world.client.create_subscription(queue, "stream")
    reader = unaided(world, subscribe=queue)
    reader.partitions({queue: 40}, {queue: 40})

    with pytest.raises(DataLoss, match="the stream had come to 40"):
        reader.latestOffset()
