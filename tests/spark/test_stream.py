"""A stream is a subscription: where it begins, what it acknowledges, what it says when it loses."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.errors import InvalidArgument
from penstock.spark.errors import DataLoss
from penstock.spark.fetch import Range
from penstock.spark.options import read_options
from penstock.spark.schema import read_schema
from penstock.spark.stream_reader import PenstockStreamReader
from penstock.spark.versions import (
    SAYS_START,
    ReadAllAvailable,
    ReadMaxRows,
    start_to_the_end,
)
from tests.spark.helpers import World, indexes, run_available

ALL = ReadAllAvailable()


def reader_of(world: World, **options: str) -> PenstockStreamReader:
    given = {**world.options, "subscription": "stream", **options}
    checked = read_options(given, "stream")
    return PenstockStreamReader(checked, read_schema(checked))


def landed(world: World, directory: Path) -> list[int]:
    return indexes(world.spark.read.parquet(str(directory / "out")))


def test_after_a_run_to_the_end_the_floor_is_at_the_end(
    world: World, queue: str, tmp_path: Path
) -> None:
    world.publish(queue, 100)
    stream = world.stream(subscribe=queue, maxOffsetsPerTrigger="40")

    query = run_available(stream, tmp_path)

    assert landed(world, tmp_path) == list(range(100))
    assert world.floor(queue) == 100
    rows = [progress.numInputRows for progress in query.recentProgress]
    assert max(rows) <= 40


def test_a_second_run_goes_on_where_the_first_ended(
    world: World, queue: str, tmp_path: Path
) -> None:
    world.publish(queue, 10)
    run_available(world.stream(subscribe=queue), tmp_path)
    world.publish(queue, 10, first=10)

    run_available(world.stream(subscribe=queue), tmp_path)

    assert landed(world, tmp_path) == list(range(20))
    assert world.floor(queue) == 20


def test_the_floor_stays_while_a_batch_is_unfinished(
    world: World, queue: str, tmp_path: Path
) -> None:
    world.publish(queue, 5)

    def fail(_rows: DataFrame, _batch: int) -> None:
        raise RuntimeError("the sink is broken")

    query = (
        world.stream(subscribe=queue)
        .writeStream.foreachBatch(fail)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(PySparkException, match="the sink is broken"):
        query.awaitTermination()

    assert world.floor(queue) == 0


def test_asking_for_the_latest_twice_loses_nothing_in_between(world: World, queue: str) -> None:
    world.publish(queue, 3)
    reader = reader_of(world, subscribe=queue, startingOffsets="latest")

    first = reader.initialOffset()
    world.publish(queue, 2, first=3)
    second = reader.initialOffset()

    assert first == second == {queue: 3}
    assert reader.latestOffset(second, ALL) == {queue: 5}


def test_where_a_new_stream_begins(world: World, queue: str) -> None:
    world.publish(queue, 10)
    world.client.create_subscription(queue, "stream", start=4)

    def initial(starting: str) -> int:
        return reader_of(world, subscribe=queue, startingOffsets=starting).initialOffset()[queue]

    assert initial("floor") == 4
    assert initial("latest") == 4  # what is not finished is never skipped
    assert initial("earliest") == 0
    assert initial(f'{{"{queue}": 6}}') == 6
    assert initial(world.client.read(queue, 0, 1)[0].created_at.isoformat()) == 0


def test_a_new_stream_cannot_begin_beyond_the_end(world: World, queue: str) -> None:
    world.publish(queue, 10)
    beyond = {"subscribe": queue, "startingOffsets": f'{{"{queue}": 11}}'}

    with pytest.raises(DataLoss, match=f"startingOffsets is 11 for queue '{queue}', which ends"):
        reader_of(world, **beyond).initialOffset()
    reader = reader_of(world, **beyond, failOnDataLoss="false")

    # With the next message, rather than with the first.
    start = reader.initialOffset()
    assert start == {queue: 10}
    assert reader.latestOffset(start, ALL) == {queue: 10}


def test_a_limit_is_shared_by_the_queues(world: World, queue: str) -> None:
    other = f"{queue}-b"
    world.client.create_queue(other)
    world.publish(queue, 100)
    world.publish(other, 10)
    reader = reader_of(world, subscribe=f"{queue},{other}")

    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(50))

    assert end == {queue: 40, other: 10}
    assert reader.latestOffset(end, ReadMaxRows(50)) == {queue: 90, other: 10}
    assert world.floor(queue) == 40


def test_queues_take_turns_if_the_limit_is_below_their_number(world: World, queue: str) -> None:
    others = [f"{queue}-b", f"{queue}-c"]
    for other in others:
        world.client.create_queue(other)
    world.publish(queue, 10)
    reader = reader_of(world, subscribe=",".join([queue, *others]))
    at = reader.initialOffset()

    for _ in range(6):
        for other in others:  # always has less waiting than the first
            world.publish(other, 1)
        before, at = at, reader.latestOffset(at, ReadMaxRows(2))
        assert sum(at.values()) - sum(before.values()) == 2

    assert at == dict.fromkeys([queue, *others], 4)


def test_a_queue_that_appears_is_read_from_its_beginning(world: World, queue: str) -> None:
    world.publish(queue, 2)
    reader = reader_of(world, subscribePattern=f"{queue}.*")
    start = reader.latestOffset(reader.initialOffset(), ALL)
    world.client.create_queue(f"{queue}-new")
    world.publish(f"{queue}-new", 3)

    found = reader.latestOffset(start, ALL)
    after = reader.latestOffset(found, ALL)

    assert found == {queue: 2, f"{queue}-new": 0}
    assert reader.partitions(start, found) == []
    assert after == {queue: 2, f"{queue}-new": 3}


def test_a_queue_that_the_pattern_no_longer_matches_keeps_its_place(
    world: World, queue: str
) -> None:
    world.client.create_queue(f"{queue}-b")
    world.client.create_subscription(queue, "stream")
    world.publish(queue, 5)
    start = {queue: 5, f"{queue}-b": 7}

    end = reader_of(world, subscribe=queue).latestOffset(start, ALL)

    assert end == start


def test_an_available_run_ends_where_the_queue_ended_when_it_began(
    world: World, queue: str
) -> None:
    world.publish(queue, 5)
    reader = reader_of(world, subscribe=queue)
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    world.publish(queue, 5, first=5)

    end = reader.latestOffset(start, ALL)

    assert end == {queue: 5}
    assert reader.latestOffset(end, ALL) == end


def test_an_idle_stream_asks_twice_a_second_at_most(
    world: World, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    reader = reader_of(world, subscribe=queue)
    start = reader.initialOffset()

    for _ in range(20):
        assert reader.latestOffset(start, ALL) == start

    # One request a look.
    assert sum(slept[-10:]) >= 10 / 2
    world.publish(queue, 1)
    news = reader.latestOffset(start, ALL)
    slept.clear()
    reader.latestOffset(news, ALL)
    assert slept == []


def test_messages_that_other_subscriptions_must_have_first_are_not_read(
    world: World, queue: str
) -> None:
    world.client.create_subscription(queue, "first", start="earliest")
    world.client.create_subscription(queue, "stream", start="earliest", after=["first"])
    world.publish(queue, 3)
    reader = reader_of(world, subscribe=queue)
    start = reader.initialOffset()

    assert reader.latestOffset(start, ALL) == {queue: 0}
    world.client.ack_up_to(queue, 2, subscription="first")
    assert reader.latestOffset(start, ALL) == {queue: 2}


def test_a_subscription_with_a_filter_is_refused(world: World, queue: str) -> None:
    world.client.create_subscription(queue, "stream", filter="topic == 'a'")

    with pytest.raises(InvalidArgument, match="has a filter"):
        reader_of(world, subscribe=queue).initialOffset()


def test_a_purge_is_named_or_passed_over(world: World, queue: str, tmp_path: Path) -> None:
    world.publish(queue, 4)
    run_available(world.stream(subscribe=queue), tmp_path)
    world.publish(queue, 3, first=4)
    world.client.purge_queue(queue)
    world.publish(queue, 2, first=7)

    with pytest.raises(PySparkException, match=r"3 messages are gone .*index 4 to 6"):
        run_available(world.stream(subscribe=queue), tmp_path)
    run_available(world.stream(subscribe=queue, failOnDataLoss="false"), tmp_path)

    assert landed(world, tmp_path) == [0, 1, 2, 3, 7, 8]
    assert world.floor(queue) == 9


def test_a_queue_that_is_gone_or_made_anew_is_named(world: World, queue: str) -> None:
    start = {queue: 10}
    world.publish(queue, 2)
    world.client.create_subscription(queue, "stream")
    strict = reader_of(world, subscribe=queue)
    careless = reader_of(world, subscribe=queue, failOnDataLoss="false")

    with pytest.raises(DataLoss, match="ends before index 2, and the stream had come to 10"):
        strict.latestOffset(start, ALL)
    end = careless.latestOffset(start, ALL)
    assert careless.partitions(start, end) == [Range(queue, 0, 2)]

    world.client.delete_queue(queue)
    with pytest.raises(DataLoss, match="is gone, and with it whatever it held from index 10"):
        strict.latestOffset(start, ALL)
    assert careless.latestOffset(start, ALL) == start


def test_a_queue_that_is_deleted_after_a_batch_was_planned_is_named_or_passed_over(
    world: World, queue: str, tmp_path: Path
) -> None:
    seen: list[int] = []
    is_broken = False

    def sink(rows: DataFrame, _batch: int) -> None:
        if is_broken:
            raise RuntimeError("the sink is broken")
        seen.extend(indexes(rows))

    def land(**options: str) -> None:
        stream = world.stream(subscribePattern=f"{queue}.*", **options)
        writer = stream.writeStream.foreachBatch(sink)
        query = start_to_the_end(writer.option("checkpointLocation", str(tmp_path / "checkpoint")))
        query.awaitTermination()

    other = f"{queue}-b"
    world.client.create_queue(other)
    world.publish(queue, 2)
    land()
    # Given a batch that has to be run again, and a queue that was deleted in the meantime
    world.publish(queue, 1, first=2)
    world.publish(other, 4)
    is_broken = True
    with pytest.raises(PySparkException, match="the sink is broken"):
        land()
    is_broken = False
    world.client.delete_queue(other)

    with pytest.raises(PySparkException, match=rf"DataLoss: .* '{other}' 4 messages are gone"):
        land()
    land(failOnDataLoss="false")

    assert seen == [0, 1, 2]


def test_a_queue_may_be_called_as_if_it_held_events(world: World, queue: str) -> None:
    alone, told = f"{queue}-page-events", f"{queue}-told"
    for name in (alone, f"{queue}-events"):
        world.client.create_queue(name)
    world.client.create_queue(told, events=True)
    world.publish(told, 1)
    world.client.alter_queue(told, events=False)

    messages = reader_of(world, subscribePattern=f"{queue}.*").initialOffset()
    events = reader_of(world, subscribePattern=f"{queue}.*", stream="events").initialOffset()

    assert messages == dict.fromkeys((queue, f"{queue}-events", alone, told), 0)
    assert events == {told: 0}


def test_a_queue_that_is_made_anew_and_longer_is_named(
    world: World, queue: str, tmp_path: Path
) -> None:
    world.publish(queue, 2)
    run_available(world.stream(subscribe=queue), tmp_path)
    world.client.delete_queue(queue)
    world.client.create_queue(queue)
    world.publish(queue, 1)
    for count in (1, 3):  # the first attempt must not hide it from the second
        world.publish(queue, count)
        with pytest.raises(PySparkException, match=f"{queue}' has no subscription 'stream'"):
            run_available(world.stream(subscribe=queue), tmp_path)

    world.client.create_subscription(queue, "stream", start=2)
    run_available(world.stream(subscribe=queue), tmp_path)

    assert landed(world, tmp_path) == [0, 1, 2, 3, 4]


@pytest.mark.skipif(not SAYS_START, reason="Spark asks for it from 4.2 on")
def test_the_backlog_is_in_the_progress(world: World, queue: str, tmp_path: Path) -> None:
    world.publish(queue, 9)

    query = run_available(world.stream(subscribe=queue, maxOffsetsPerTrigger="4"), tmp_path)

    first = query.recentProgress[0].sources[0]
    assert f'"{queue}": 9' in str(first.latestOffset).replace('":9', '": 9').replace("'", '"')
    assert first.numInputRows == 4


def test_spark_transforms_a_stream_like_any_other(world: World, queue: str, tmp_path: Path) -> None:
    world.publish(queue, 20)

    odd = world.stream(subscribe=queue, bodyAs="string").where("index % 2 = 1")
    run_available(odd.withColumn("text", F.upper("body")), tmp_path)

    rows = world.spark.read.parquet(str(tmp_path / "out"))
    assert {row["text"] for row in rows.collect()} == {f"BODY {n}" for n in range(1, 20, 2)}


def end_with(error: Exception, reader: PenstockStreamReader) -> None:
    """As Spark's process for a source ends."""
    try:
        raise error
    finally:
        reader.stop()


@pytest.mark.parametrize("error", [EOFError(), ConnectionResetError()])
def test_a_source_on_which_spark_hangs_up_ends_without_a_word(
    world: World, queue: str, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(sys, "stderr", sys.stderr)

    with pytest.raises(type(error)):
        end_with(error, reader_of(world, subscribe=queue))

    with sys.stderr as silent:
        assert silent.name == os.devnull


def test_a_source_that_fails_is_heard(
    world: World, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sys.stderr
    monkeypatch.setattr(sys, "stderr", before)

    with pytest.raises(DataLoss):
        end_with(DataLoss("3 messages are gone"), reader_of(world, subscribe=queue))

    assert sys.stderr is before
