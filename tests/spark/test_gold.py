"""The figures of gold, from batches that are landed by hand."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.pipeline import gold
from penstock.pipeline.backlogs import Backlog
from penstock.pipeline.gold import gold_path, refresh_gold
from penstock.pipeline.lake import Lake
from penstock.pipeline.landing import Landing
from penstock.pipeline.silver import compact_silver, refresh_silver
from tests.spark.helpers import figures
from tests.spark.landings import ending_at, land_bodies, land_events, land_messages

NOON = datetime(2030, 1, 31, 12, tzinfo=UTC)
A_DAY = timedelta(days=1)
ACME = [("tenant", "acme")]


def message(index: int, *, at: datetime = NOON, **more: Any) -> dict[str, Any]:
    return {"index": index, "id": f"id-{index}", "body": b"12345", "created_at": at, **more}


def event(
    index: int,
    kind: str,
    *,
    at: datetime = NOON,
    published_at: datetime = NOON,
    subscription: str | None = "mail",
    **more: Any,
) -> dict[str, Any]:
    times = {"at": at, "published_at": published_at}
    return {"index": index, "event": kind, "subscription": subscription, **times, **more}


def delivered(indexes: Iterable[int], **more: Any) -> list[dict[str, Any]]:
    return [event(index, "delivered", deliveries=1, **more) for index in indexes]


def by_topic_and_tenant(lake: Lake, *columns: str) -> dict[tuple[Any, Any], tuple[Any, ...]]:
    return {
        (row["topic"], row["tenant"]): tuple(row[name] for name in columns)
        for row in figures(lake, "traffic_day")
    }


def test_what_became_of_messages_is_told_by_topic_and_tenant(
    spark: SparkSession, lake: Lake
) -> None:
    later = NOON + timedelta(seconds=3)
    land_messages(
        lake,
        [
            message(0, topic="a", attributes=ACME),
            message(1, topic="a", attributes=ACME),
            message(2, topic="b"),
            message(3),
        ],
    )
    land_events(
        lake,
        [
            *delivered(range(3), at=NOON + timedelta(seconds=1)),
            event(0, "acked", at=later, deliveries=1),
            event(1, "nacked", at=later, deliveries=1),
            event(1, "delivered", at=later, deliveries=2),
            event(2, "dead_lettered", at=later, deliveries=1, reason="no card"),
            event(0, "delivered", subscription="other", deliveries=1, at=later),
            event(3, "published", subscription=None),
            # The pipeline reads everything, which is not what became of a message.
            *delivered(range(4), subscription="pipeline"),
        ],
    )

    refresh_gold(spark, lake)

    counts = ("published", "bytes", "delivered", "redelivered", "acked", "nacked", "dead")
    assert by_topic_and_tenant(lake, *counts) == {
        ("a", "acme"): (2, 10, 4, 1, 1, 1, 0),
        ("b", None): (1, 5, 1, 0, 0, 0, 1),
        (None, None): (1, 5, None, None, None, None, None),
    }
    quantiles = ("first_delivery_p50_ms", "first_delivery_p99_ms", "ack_p50_ms")
    assert by_topic_and_tenant(lake, *quantiles) == {
        ("a", "acme"): (1000.0, 3000.0, 3000.0),
        ("b", None): (1000.0, 1000.0, None),
        (None, None): (None, None, None),
    }
    assert {row["subscription"]: row["delivered"] for row in figures(lake, "delivery_day")} == {
        "mail": 4,
        "other": 1,
        "pipeline": 4,
    }
    [letters] = figures(lake, "dead_letters")
    assert (letters["reason"], letters["dead"]) == ("no card", 1)
    talkers = [(row["rank"], row["tenant"], row["bytes"]) for row in figures(lake, "top_talkers")]
    assert talkers == [(1, "acme", 10), (2, None, 5), (3, None, 5)]


def test_files_of_a_few_rows_are_for_other_tables(spark: SparkSession, lake: Lake) -> None:
    """Some set a limit for the files of silver."""
    bodies = 5
    spark.conf.set("spark.sql.files.maxRecordsPerFile", "2")
    try:
        for _ in range(3):
            land_bodies(lake, [b"{}"] * bodies)
            refresh_silver(spark, lake, {})
        minutes = [NOON + timedelta(minutes=n) for n in range(bodies)]
        first = 3 * bodies
        land_messages(lake, [message(first + n, at=at) for n, at in enumerate(minutes)])
        land_events(lake, [e for at in minutes for e in delivered([0], at=at)])
        refresh_gold(spark, lake)
        before = lake.table("silver").files(".parquet")
        compact_silver(lambda: spark, lake)
    finally:
        spark.conf.unset("spark.sql.files.maxRecordsPerFile")

    published = sum(row["published"] for row in figures(lake, "traffic_minute"))
    assert published == 4 * bodies
    assert sum(row["delivered"] for row in figures(lake, "delivery_minute")) == bodies
    assert len(before) > len(lake.table("silver").files(".parquet"))
    assert spark.read.parquet(str(lake.table("silver"))).count() == 3 * bodies


def test_an_event_that_comes_before_its_message_is_counted_once_and_waits(
    spark: SparkSession, lake: Lake
) -> None:
    land_messages(lake, [message(0, topic="a")])
    land_events(lake, delivered(range(3)))
    refresh_gold(spark, lake)
    assert by_topic_and_tenant(lake, "delivered") == {("a", None): (1,), (None, None): (2,)}

    land_messages(lake, [message(1, topic="b", attributes=ACME)])
    refresh_gold(spark, lake)

    assert by_topic_and_tenant(lake, "delivered") == {
        ("a", None): (1,),
        ("b", "acme"): (1,),
        (None, None): (1,),
    }
    [mail] = figures(lake, "delivery_day")
    assert mail["delivered"] == 3
    # Index 2 was purged before it was landed, and never will be.
    land_messages(lake, [message(3, topic="a")])
    refresh_gold(spark, lake)
    land_events(lake, delivered([3]))
    refresh_gold(spark, lake)

    assert by_topic_and_tenant(lake, "delivered") == {
        ("a", None): (2,),
        ("b", "acme"): (1,),
        (None, None): (1,),
    }


def test_the_messages_of_late_events_are_found_in_the_files_of_their_day(
    spark: SparkSession, lake: Lake
) -> None:
    for day in range(3):
        at = NOON + day * A_DAY
        first = 100_000 * day
        land_messages(lake, [message(first + n, at=at, topic=f"t{day}") for n in range(3)])
    now = NOON + 2 * A_DAY
    land_events(
        lake,
        [
            event(1, "acked", at=now),
            event(100_002, "acked", at=now, published_at=NOON + A_DAY),
            event(200_000, "acked", at=now, published_at=now),
        ],
    )

    refresh_gold(spark, lake)

    acked = {row["topic"]: row["acked"] for row in figures(lake, "traffic_minute") if row["acked"]}
    assert acked == {"t0": 1, "t1": 1, "t2": 1}


def test_days_without_new_rows_stay_as_they_are(spark: SparkSession, lake: Lake) -> None:
    land_messages(lake, [message(0), message(1, at=NOON + A_DAY)])
    land_events(lake, delivered([0, 1]))
    refresh_gold(spark, lake)
    states = {file.path for file in (lake.own / "state").files(".parquet")}
    before = gold_path(lake, "traffic_minute").files()
    first_day = before[0].open().read()

    land_messages(lake, [message(2, at=NOON + A_DAY)])
    refresh_gold(spark, lake)

    days = {row["day"]: row["published"] for row in figures(lake, "traffic_day")}
    assert days == {"2030-01-31": 1, "2030-02-01": 2}
    assert gold_path(lake, "traffic_minute").files()[0].open().read() == first_day
    left = {file.path for file in (lake.own / "state").files(".parquet")}
    assert len(states - left) == 1  # that of the second day was replaced


def test_a_backlog_is_the_last_that_was_measured_in_a_minute(
    spark: SparkSession, lake: Lake
) -> None:
    times = [NOON, NOON + timedelta(seconds=59), NOON + timedelta(seconds=60)]
    for at, backlog in zip(times, (7, 5, 9), strict=True):
        measured = [Backlog(at, "orders", "mail", backlog), Backlog(at, "orders", "other", 0)]
        assert refresh_gold(spark, lake, backlogs=measured) is True

    rows = [row for row in figures(lake, "backlog_minute") if row["subscription"] == "mail"]
    assert [(row["minute"], row["backlog"]) for row in rows] == [
        (NOON, 5),
        (NOON + timedelta(minutes=1), 9),
    ]


def test_tables_that_a_crash_has_left_behind_are_made_by_the_next_refresh(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    land_messages(lake, [message(0)])
    refresh_gold(spark, lake)
    land_messages(lake, [message(1), message(2, at=NOON + A_DAY)])
    with monkeypatch.context() as patch:
        patch.setattr(gold, "_show", lambda *_: 1 / 0)  # the state is landed by then
        with pytest.raises(ZeroDivisionError):
            refresh_gold(spark, lake)

    assert refresh_gold(spark, lake) is True

    assert [row["published"] for row in figures(lake, "traffic_day")] == [2, 1]
    assert refresh_gold(spark, lake) is False


# Before the entry is there, between its moves, between its removals, between the tables, and before
# they are marked as shown.
@pytest.mark.parametrize("step", [9, 12, 18, 19, 30, 59])
def test_every_event_is_counted_once_whatever_step_a_refresh_was_ended_at(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    land_messages(lake, [message(0, topic="a")])
    land_events(lake, delivered(range(2)))
    refresh_gold(spark, lake)
    land_messages(lake, [message(1, topic="b")])
    land_events(lake, delivered([1], at=NOON + A_DAY, published_at=NOON))
    with monkeypatch.context() as patch, ending_at(step, patch):
        refresh_gold(spark, lake)

    refresh_gold(spark, Lake(lake.root))

    assert [
        (row["day"], row["topic"], row["published"], row["delivered"])
        for row in figures(lake, "traffic_day")
    ] == [("2030-01-31", "a", 1, 1), ("2030-01-31", "b", 1, 1), ("2030-02-01", "b", 0, 1)]


def test_a_batch_whose_files_a_crash_has_not_moved_is_not_passed_over(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    land_bodies(lake, [b"1"])
    with monkeypatch.context() as patch:
        patch.setattr(Landing, "_move", lambda *_: 1 / 0)  # there is an entry by then
        with pytest.raises(ZeroDivisionError):
            land_events(lake, delivered([0]))

    # Nobody has started the stream of events since.
    started = Lake(lake.root)
    refresh_silver(spark, started, {})
    refresh_gold(spark, started)

    assert [row["delivered"] for row in figures(lake, "delivery_day")] == [1]
