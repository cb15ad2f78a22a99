"""The pipeline: bronze, silver, gold and what is made of them, on a real Spark."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from penstock import NewMessage
from penstock.errors import InvalidArgument
from penstock.pipeline import gold
from penstock.pipeline.bronze import MESSAGES, land_stream
from penstock.pipeline.compaction import compact_table
from penstock.pipeline.errors import LakeInUse, QueryFailed
from penstock.pipeline.lake import Lake
from penstock.pipeline.landing import Landing
from penstock.pipeline.replay import Replay
from penstock.pipeline.run import Job, compact, run
from penstock.pipeline.silver import refresh_silver
from penstock.pipeline.status import status_of
from tests.spark.helpers import World, figures

BAD = {
    b"": "empty",
    b"{": "not_json",
    b"\xff\xfe": "not_utf8",
    b'{"a": 1, "a": 2}': "not_json",
    b"[" * 2000 + b"]" * 2000: "not_json",
    b"\x00": "not_json",
    b"plain words": "not_json",
    b'{"a": 1} and more': "not_json",
    b'{"a": 1}\n{"a": 2}\n': "not_json",
    b'{"a": 1},{"a": 2}': "not_json",
    b"[1]]": "not_json",
}
GOOD = [
    b'{"id": 1, "total": 9.5}',
    b'{"id": "a text", "new_field": [1, 2]}',
    b"null",
    b"17",
    b' {"a": {}}\n',
    b'"' + b"x" * (1024 * 1024 - 2) + b'"',
]


def job(world: World, lake: Lake, queue: str, **changes: object) -> Job:
    settings = {"queues": [queue], "once": True, **changes}
    return Job(lake=lake, options=world.options, **settings)  # type: ignore[arg-type]


def land(world: World, lake: Lake, queue: str, **options: str) -> None:
    """Bronze alone."""
    given = {**world.options, "subscribe": queue, "subscription": "pipeline", **options}
    query = land_stream(world.spark, lake, MESSAGES, given, once=True)
    query.awaitTermination()


def seen_by_arrow(lake: Lake, table: str = "bronze") -> list[tuple[str, int]]:
    """As any reader of parquet files sees it, who knows nothing of Spark."""
    rows = ds.dataset(lake.table(table), format="parquet", partitioning="hive").to_table()
    return sorted(zip(rows["queue"].to_pylist(), rows["index"].to_pylist(), strict=True))


def test_every_message_goes_through_bronze_and_silver_exactly_once(
    world: World, queue: str, lake: Lake
) -> None:
    bodies = [*BAD, *GOOD]
    world.client.publish(queue, [NewMessage(body=body, topic="t") for body in bodies])
    first = run(world.spark, job(world, lake, queue, max_rows=5))
    world.client.publish(queue, [b'{"id": 3}'])

    run(world.spark, job(world, lake, queue))

    expected = [(queue, index) for index in range(len(bodies) + 1)]
    assert first.rows["bronze"] == len(bodies)
    assert seen_by_arrow(lake) == expected
    bronze = world.spark.read.parquet(str(lake.table("bronze"))).orderBy("index").collect()
    assert [bytes(row["body"]) for row in bronze] == [*bodies, b'{"id": 3}']
    rejects = world.spark.read.parquet(str(lake.table("rejects"))).collect()
    assert {bytes(row["body"]): row["reason"] for row in rejects} == BAD
    silver = world.spark.read.parquet(str(lake.table("silver")))
    assert silver.count() == len(GOOD) + 1
    ids = silver.selectExpr("try_variant_get(data, '$.id', 'int') id").where("id is not null")
    assert sorted(row["id"] for row in ids.collect()) == [1, 3]
    assert world.floor(queue, "pipeline") == len(bodies) + 1

    status = status_of(lake)
    assert status.landed == {queue: len(bodies) + 1}
    assert status.behind == {"silver": 0, "gold": 0}
    assert {each.table: each.rows for each in status.tables} == {
        "bronze": len(bodies) + 1,
        "silver": len(GOOD) + 1,
        "rejects": len(BAD),
    }
    # Four batches, and what every job has read is removed from the log.
    assert [len(lake.log(job).files()) for job in ("bronze", "silver", "gold")] == [1, 1, 1]
    traffic = figures(lake, "traffic_day")
    assert [(row["queue"], row["topic"]) for row in traffic] == [(queue, "t"), (queue, None)]
    assert sum(row["published"] for row in traffic) == len(bodies) + 1


def test_events_become_latencies_backlogs_and_reasons(world: World, queue: str, lake: Lake) -> None:
    world.client.alter_queue(queue, events=True)
    world.client.create_subscription(queue, "mail", start="earliest", max_deliveries=1)
    world.client.publish(queue, [NewMessage(body=b"%d" % n, topic="t") for n in range(10)])
    first, second, *others = world.client.receive(queue, limit=8, subscription="mail")
    world.client.ack(queue, [first, *others], subscription="mail")
    world.client.nack(queue, [second], reason="no such address", subscription="mail")

    run(world.spark, job(world, lake, queue))

    def rows(table: str) -> list[dict[str, Any]]:
        return [row for row in figures(lake, table) if row["subscription"] == "mail"]

    events = world.spark.read.parquet(str(lake.table("events")))
    counts = {row["event"]: row["count"] for row in events.groupBy("event").count().collect()}
    # The pipeline is a subscription too, and acks everything.
    assert counts["published"] == 10
    assert counts["acked"] == 7 + 10
    [day] = rows("delivery_day")
    assert (day["delivered"], day["acked"], day["dead"]) == (8, 7, 1)
    assert 0 <= day["first_delivery_p50_ms"] <= day["first_delivery_p99_ms"]
    assert day["first_delivery_p50_ms"] <= day["ack_p50_ms"]
    assert [(row["reason"], row["dead"]) for row in rows("dead_letters")] == [
        ("no such address", 1)
    ]
    assert [row["backlog"] for row in rows("backlog_minute")] == [2]
    assert status_of(lake).behind == {"silver": 0, "gold": 0}


def test_a_typed_queue_has_a_table_of_its_own_and_wrong_types_are_rejected(
    world: World, queue: str, lake: Lake
) -> None:
    world.client.publish(queue, [b'{"id": 1}', b'{"id": "one"}'])
    land(world, lake, queue)

    refresh_silver(world.spark, lake, {queue: "id INT"})

    typed = world.spark.read.parquet(str(lake.table(f"typed-{queue}"))).collect()
    rejects = world.spark.read.parquet(str(lake.table("rejects"))).collect()

    assert [(row["index"], row["data"]["id"]) for row in typed] == [(0, 1)]
    assert [(row["index"], row["reason"]) for row in rejects] == [(1, "wrong_type")]


def test_a_batch_that_is_run_again_after_it_was_landed_adds_nothing(
    world: World, queue: str, lake: Lake
) -> None:
    world.publish(queue, 10)
    land(world, lake, queue)
    # Given a crash before Spark noted the batch, a new process gets the same one again.
    commits = lake.checkpoint("bronze") / "commits"
    for name in ("0", ".0.crc"):
        (commits / name).remove()
    world.publish(queue, 5, first=10)

    land(world, lake, queue)

    assert seen_by_arrow(lake) == [(queue, index) for index in range(15)]
    assert [entry.progress for entry in Landing(lake, "bronze").entries()] == [
        {queue: 10},
        {queue: 15},
    ]


def test_a_lost_checkpoint_repeats_nothing(world: World, queue: str, lake: Lake) -> None:
    world.publish(queue, 10)
    land(world, lake, queue)
    lake.checkpoint("bronze").remove()
    world.client.seek(queue, "earliest", subscription="pipeline")
    world.publish(queue, 5, first=10)

    land(world, lake, queue, maxOffsetsPerTrigger="8")

    assert seen_by_arrow(lake) == [(queue, index) for index in range(15)]


def test_a_checkpoint_that_is_older_than_the_lake_repeats_nothing(
    world: World, queue: str, lake: Lake
) -> None:
    world.publish(queue, 15)
    land(world, lake, queue, maxOffsetsPerTrigger="5")
    # Given a power loss after three batches: the lake was synced, and of the checkpoint there is
    # only the first one.
    for notes in ("offsets", "commits"):
        for name in ("1", ".1.crc", "2", ".2.crc"):
            (lake.checkpoint("bronze") / notes / name).remove()
    world.publish(queue, 5, first=15)

    land(world, lake, queue, maxOffsetsPerTrigger="4")

    assert seen_by_arrow(lake) == [(queue, index) for index in range(20)]
    assert Landing(lake, "bronze").totals() == {"bronze": 20}


def test_a_queue_that_was_made_anew_begins_again_if_losses_are_no_error(
    world: World, queue: str, lake: Lake
) -> None:
    options = {"failOnDataLoss": "false", "subscribePattern": queue}
    given = {**world.options, "subscription": "pipeline", **options}
    for first in (0, 7):
        world.publish(queue, 7, first=first)
        land_stream(world.spark, lake, MESSAGES, given, once=True).awaitTermination()
    world.client.delete_queue(queue)
    world.client.create_queue(queue)
    world.publish(queue, 3)

    land_stream(world.spark, lake, MESSAGES, given, once=True).awaitTermination()

    assert [entry.progress[queue] for entry in Landing(lake, "bronze").entries()] == [7, 14, 3]
    assert seen_by_arrow(lake) == sorted((queue, n) for n in [*range(14), *range(3)])


def test_checkpoints_may_be_elsewhere(world: World, queue: str, lake: Lake, tmp_path: Path) -> None:
    elsewhere = f"file://{tmp_path}/elsewhere"
    options = {**world.options, "subscribe": queue, "subscription": "pipeline"}

    for first in (0, 10):
        world.publish(queue, 10, first=first)
        query = land_stream(world.spark, lake, MESSAGES, options, once=True, checkpoints=elsewhere)
        query.awaitTermination()

    assert seen_by_arrow(lake) == [(queue, index) for index in range(20)]
    assert not lake.checkpoint("bronze").exists()
    assert len(list((tmp_path / "elsewhere" / "bronze" / "commits").glob("[0-9]*"))) == 2


def test_compaction_leaves_one_file_and_every_row(world: World, queue: str, lake: Lake) -> None:
    world.publish(queue, 30)
    land(world, lake, queue, maxOffsetsPerTrigger="10")
    # Silver and gold are yet to read the files.
    assert compact(lake, lambda: world.spark)["bronze"].before == 0
    refresh_silver(world.spark, lake, {})
    gold.refresh_gold(world.spark, lake)

    done = compact(lake, lambda: world.spark)

    # The newest batch is looked at again after a crash, so its file stays.
    assert (done["bronze"].before, done["bronze"].after) == (2, 1)
    assert len(lake.table("bronze").files(".parquet")) == 2
    assert seen_by_arrow(lake) == [(queue, index) for index in range(30)]


def test_files_of_silver_are_merged_whatever_their_bodies_look_like(
    world: World, queue: str, lake: Lake
) -> None:
    # Given bodies of which each file stores other paths as columns, and some that do not parse
    for body in (b'{"a": 1}', b'{"a": 2, "b": {"c": [3]}}', b'["x"]'):
        world.client.publish(queue, [body, b"", body])
        land(world, lake, queue)
        refresh_silver(world.spark, lake, {})
    before = silver_of(world, lake)

    done = compact(lake, lambda: world.spark)

    # Then the rows are the same, in one file besides the newest batch's, and shredded again
    assert {name: tuple(done[name]) for name in ("silver", "rejects")} == {
        "silver": (2, 1),
        "rejects": (2, 1),
    }
    assert len(before) == 6
    assert silver_of(world, lake) == before
    assert seen_by_arrow(lake, "rejects") == [(queue, index) for index in (1, 4, 7)]
    merged, newest = lake.table("silver").files(".parquet")
    assert (merged.name, newest.name) == (
        f"{0:020d}-{5:020d}.parquet",
        f"{6:020d}-{8:020d}.parquet",
    )
    with merged.open() as file:
        assert "typed_value" in str(pq.read_schema(file))
    # And a start finds the newest files where it left them
    refresh_silver(world.spark, lake, {})
    assert compact(lake, lambda: world.spark)["silver"].before == 0


def silver_of(world: World, lake: Lake) -> list[tuple[object, ...]]:
    rows = world.spark.read.parquet(str(lake.table("silver")))
    found = rows.selectExpr("queue", "day", "index", "id", "topic", "created_at", "to_json(data)")
    return sorted(tuple(row) for row in found.collect())


def test_files_of_a_typed_table_are_merged_with_those_of_the_same_schema(
    world: World, queue: str, lake: Lake
) -> None:
    for ddl in ("a INT", "a INT", "a STRING", "a STRING", "a STRING"):
        world.client.publish(queue, [b'{"a": 1}'])
        land(world, lake, queue)
        refresh_silver(world.spark, lake, {queue: ddl})

    done = compact(lake, lambda: world.spark)

    typed = f"typed-{queue}"
    assert tuple(done[typed]) == (4, 2)
    assert [file.name[19] for file in lake.table(typed).files(".parquet")] == ["0", "2", "4"]
    # And no value has become another
    kept = [
        [row["data"]["a"] for row in world.spark.read.parquet(str(file)).collect()]
        for file in lake.table(typed).files(".parquet")
    ]
    assert kept == [[1, 1], ["1", "1"], ["1"]]


def test_two_pipelines_cannot_have_one_lake(world: World, queue: str, lake: Lake) -> None:
    with lake.lock(), pytest.raises(LakeInUse, match="a pipeline is at work"):
        run(world.spark, job(world, Lake(lake.root), queue))


def test_a_failed_stream_is_told_in_one_sentence(world: World, queue: str, lake: Lake) -> None:
    world.publish(queue, 3)
    land(world, lake, queue)
    world.publish(queue, 2, first=3)
    world.client.purge_queue(queue)

    with pytest.raises(QueryFailed, match=r"DataLoss: of queue .* 2 messages are gone"):
        run(world.spark, job(world, lake, queue))

    assert seen_by_arrow(lake) == [(queue, index) for index in range(3)]


def test_a_run_goes_on_until_it_is_stopped(world: World, queue: str, lake: Lake) -> None:
    stop = threading.Event()
    world.publish(queue, 3)

    def show(progress: object) -> None:
        if getattr(progress, "rows", {}).get("bronze") == 3:
            stop.set()

    progress = run(world.spark, job(world, lake, queue, once=False), stop=stop, show=show)

    assert progress.rows["bronze"] == 3
    assert seen_by_arrow(lake, "bronze") == [(queue, 0), (queue, 1), (queue, 2)]


def test_a_replay_counts_first_and_sends_what_meets_the_condition(
    world: World, queue: str, lake: Lake
) -> None:
    target = f"{queue}-again"
    world.client.create_queue(target)
    world.publish(queue, 10)
    land(world, lake, queue)
    replay = Replay(world.spark, lake, "cast(body as string) like '%7' or index < 2", target)

    assert replay.count() == {queue: 3}
    assert world.client.queue_stats(target).messages == 0
    replay.send(world.options)

    messages = world.client.read(target)
    assert sorted(message.body for message in messages) == [b"body 0", b"body 1", b"body 7"]
    assert {message.attributes["replayed-from"] for message in messages} == {queue}


def test_a_replay_that_is_repeated_after_a_compaction_publishes_nothing_twice(
    world: World, queue: str, lake: Lake
) -> None:
    target = f"{queue}-again"
    world.client.create_queue(target)
    world.publish(queue, 15)
    land(world, lake, queue, maxOffsetsPerTrigger="5")
    Replay(world.spark, lake, "true", target).send(world.options)
    before = lake.table("bronze").files(".parquet")

    compact_table(lake, "bronze")
    Replay(world.spark, lake, "true", target).send(world.options)

    assert len(before) == 3
    assert len(lake.table("bronze").files(".parquet")) == 1
    replayed = [message.body for message in world.client.read(target)]
    assert replayed == [b"body %d" % n for n in range(15)]


def test_a_replay_whose_condition_meets_others_by_then_publishes_them(
    world: World, queue: str, lake: Lake
) -> None:
    target = f"{queue}-again"
    world.client.create_queue(target)
    world.publish(queue, 10)
    land(world, lake, queue)
    world.spark.sql("DECLARE OR REPLACE VARIABLE passed INT")

    for passed in (5, 10):  # like the current time
        world.spark.sql(f"SET VARIABLE passed = {passed}")
        Replay(world.spark, lake, "index < passed", target).send(world.options)

    replayed = {message.body for message in world.client.read(target)}
    assert replayed == {b"body %d" % n for n in range(10)}


def test_a_replay_of_nonsense_is_refused(world: World, queue: str, lake: Lake) -> None:
    with pytest.raises(InvalidArgument, match="there is nothing in bronze"):
        Replay(world.spark, lake, "true", queue)
    world.publish(queue, 1)
    land(world, lake, queue)

    with pytest.raises(InvalidArgument, match="not a condition over bronze"):
        Replay(world.spark, lake, "no_such_column = 1", queue)
    with pytest.raises(QueryFailed, match=r"cannot be counted: .*CAST_INVALID_INPUT"):
        Replay(world.spark, lake, "cast(cast(body as string) as int) = 1", queue).count()
    with pytest.raises(QueryFailed, match=r"cannot be published: .*there is no queue 'no-such'"):
        Replay(world.spark, lake, "true", "no-such").send(world.options)


def test_silver_has_nothing_to_do_twice(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    assert refresh_silver(spark, lake, {}) == 0
    assert gold.refresh_gold(spark, lake) is False
