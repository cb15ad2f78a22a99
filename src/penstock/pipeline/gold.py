"""Gold: figures by minute and by day.

The *state* has sums and sketches for each minute. Both can be merged, so new rows of bronze are
added to it and nothing is read twice. The tables for people are rebuilt from the state each time,
and replaced as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from penstock.pipeline.bronze import EVENTS, MESSAGES
from penstock.pipeline.lake import PARQUET, Lake
from penstock.pipeline.landing import Landing, Move
from penstock.pipeline.place import Place
from penstock.pipeline.tables import read_entries, replace_table

__all__ = ["JOB", "TABLES", "gold_path", "refresh_gold"]

JOB = "gold"
TABLES = (
    "traffic_minute",
    "traffic_day",
    "delivery_minute",
    "delivery_day",
    "dead_letters",
    "backlog_minute",
    "top_talkers",
)
_NUMBERS = {feed.table: feed.number for feed in (MESSAGES, EVENTS)}
_TALKERS = 20
_PLACE = "_penstock/state"
# The number of the entry that the tables were made from: a crash may come between the two.
_SHOWN = f"{_PLACE}/shown"
_QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


class _State(NamedTuple):
    """A table of the state: its keys, its sums, its sketches."""

    name: str
    source: str
    keys: tuple[str, ...]
    sums: tuple[str, ...]
    sketches: tuple[str, ...] = ()


_TRAFFIC = _State(
    "traffic", MESSAGES.table, ("minute", "queue", "topic", "tenant"), ("published", "bytes")
)
_DELIVERY = _State(
    "delivery",
    EVENTS.table,
    ("minute", "queue", "subscription"),
    ("delivered", "redelivered", "acked", "nacked", "expired", "dead", "replayed"),
    ("first_delivery", "ack"),
)
_LETTERS = _State("letters", EVENTS.table, ("minute", "queue", "subscription", "reason"), ("dead",))
_STATES = (_TRAFFIC, _DELIVERY, _LETTERS)


def gold_path(lake: Lake, table: str) -> Place:
    """A single file that can be read without Spark. With a table format it is kept elsewhere."""
    directory = lake.table("gold") if lake.format == PARQUET else lake.own / "gold"
    return directory / f"{table}.parquet"


def refresh_gold(spark: SparkSession, lake: Lake) -> bool:
    """Add what bronze has landed since the last time. Returns whether there was anything."""
    landing = Landing(lake, JOB)
    last = landing.recover()
    new = {
        feed.table: Landing(lake, feed.table).entries(last.progress.get(feed.table, 0))
        for feed in (MESSAGES, EVENTS)
    }
    if not any(new.values()):
        is_behind = _shown(lake) != last.number
        if is_behind:
            _publish(spark, lake, last.number)
        return is_behind
    moves: list[Move] = []
    removed: list[str] = []
    for state in _STATES:
        if not new[state.source]:
            continue
        rows = read_entries(spark, lake, state.source, _NUMBERS[state.source], new[state.source])
        added = _merged(_MAKERS[state.name](rows), state, state.keys)
        old = _files(lake, state)
        if old:
            known = spark.read.parquet(*map(str, old))
            added = _merged(known.unionByName(added), state, state.keys)
        name = f"{state.name}-{last.number + 1:012d}"
        added.coalesce(1).write.mode("overwrite").parquet(str(landing.staging / name))
        moves += [
            msgspec.structs.replace(move, path=f"{_PLACE}/{name}.parquet")
            for move in landing.staged(name)
        ]
        removed += [file.below(lake.root) for file in old]
    progress = {table: entries[-1].number for table, entries in new.items() if entries}
    entry = landing.land(progress, moves, removed)
    _publish(spark, lake, entry.number)
    return True


def _shown(lake: Lake) -> int:
    mark = lake.table(_SHOWN)
    return int(mark.read()) if mark.exists() else 0


def _files(lake: Lake, state: _State) -> list[Place]:
    found = lake.table(_PLACE).files(".parquet")
    return [file for file in found if file.name.startswith(f"{state.name}-")]


# From rows to sums and sketches.


def _minute(column: str) -> Column:
    return F.date_trunc("minute", F.col(column)).alias("minute")


def _traffic(messages: DataFrame) -> DataFrame:
    tenant = F.try_element_at("attributes", F.lit("tenant")).alias("tenant")
    return messages.groupBy(_minute("created_at"), "queue", "topic", tenant).agg(
        F.count("*").alias("published"), F.sum(F.length("body")).alias("bytes")
    )


def _delivery(events: DataFrame) -> DataFrame:
    event = F.col("event")
    is_first = (event == "delivered") & (F.col("deliveries") == 1)
    waited = F.unix_micros("at") - F.unix_micros("published_at")
    # The wait must not be negative, even if the clock was set back.
    micros = F.greatest(waited, F.lit(0))
    counted = {
        "delivered": event == "delivered",
        "redelivered": (event == "delivered") & (F.col("deliveries") > 1),
        "acked": event == "acked",
        "nacked": event == "nacked",
        "expired": event == "expired",
        "dead": event == "dead_lettered",
        "replayed": event == "replayed",
    }
    sums = [F.count_if(condition).alias(name) for name, condition in counted.items()]
    of_subscription = events.where(F.col("subscription").isNotNull())
    return of_subscription.groupBy(_minute("at"), "queue", "subscription").agg(
        *sums,
        F.kll_sketch_agg_bigint(F.when(is_first, micros)).alias("first_delivery"),
        F.kll_sketch_agg_bigint(F.when(event == "acked", micros)).alias("ack"),
    )


def _letters(events: DataFrame) -> DataFrame:
    dead = events.where(F.col("event") == "dead_lettered")
    reason = F.coalesce(F.col("reason"), F.lit("")).alias("reason")
    return dead.groupBy(_minute("at"), "queue", "subscription", reason).agg(
        F.count("*").alias("dead")
    )


_MAKERS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "traffic": _traffic,
    "delivery": _delivery,
    "letters": _letters,
}


def _merged(rows: DataFrame, state: _State, keys: tuple[str, ...]) -> DataFrame:
    sums = [F.sum(name).alias(name) for name in state.sums]
    sketches = [F.kll_merge_agg_bigint(name).alias(name) for name in state.sketches]
    return rows.groupBy(*keys).agg(*sums, *sketches)


# From the state to tables.


def _publish(spark: SparkSession, lake: Lake, number: int) -> None:
    known = {state.name: _files(lake, state) for state in _STATES}
    states = {name: spark.read.parquet(*map(str, files)) for name, files in known.items() if files}
    tables: dict[str, DataFrame] = {}
    if "traffic" in states:
        traffic = states["traffic"]
        days = _by_day(traffic, _TRAFFIC)
        tables["traffic_minute"] = traffic.orderBy("minute", "queue", "topic", "tenant")
        tables["traffic_day"] = days.orderBy("day", "queue", "topic", "tenant")
        tables["top_talkers"] = _talkers(days)
    if "delivery" in states:
        delivery = states["delivery"]
        tables["delivery_minute"] = _with_quantiles(delivery).orderBy(*_DELIVERY.keys)
        tables["delivery_day"] = _with_quantiles(_by_day(delivery, _DELIVERY)).orderBy(
            "day", "queue", "subscription"
        )
        if "traffic" in states:
            tables["backlog_minute"] = _backlog(states["traffic"], delivery)
    if "letters" in states:
        tables["dead_letters"] = _by_day(states["letters"], _LETTERS).orderBy(
            "day", "queue", "subscription", "reason"
        )
    for name, rows in tables.items():
        sink = pa.BufferOutputStream()
        pq.write_table(rows.toArrow(), sink)
        gold_path(lake, name).replace(sink.getvalue().to_pybytes())
        if lake.format != PARQUET:
            replace_table(lake, f"gold/{name}", rows)
    lake.table(_SHOWN).replace(str(number).encode())


def _by_day(rows: DataFrame, state: _State) -> DataFrame:
    dated = rows.withColumn("day", F.to_date("minute"))
    return _merged(dated, state, ("day", *state.keys[1:]))


def _with_quantiles(rows: DataFrame) -> DataFrame:
    """Replace the sketches with quantiles in milliseconds."""
    columns = [F.col(name) for name in rows.columns if name not in _DELIVERY.sketches]
    for sketch in _DELIVERY.sketches:
        is_empty = F.kll_sketch_get_n_bigint(sketch) == 0
        for name, rank in _QUANTILES.items():
            micros = F.kll_sketch_get_quantile_bigint(sketch, F.lit(rank))
            columns.append(F.when(~is_empty, micros / 1000).alias(f"{sketch}_{name}_ms"))
    return rows.select(*columns)


def _backlog(traffic: DataFrame, delivery: DataFrame) -> DataFrame:
    """Messages published and not settled at the end of each minute, since the first one landed."""
    readers = delivery.select("queue", "subscription").distinct()
    came = traffic.select("minute", "queue", F.col("published").alias("change")).join(
        readers, "queue"
    )
    settled = F.col("acked") + F.col("expired") + F.col("dead") - F.col("replayed")
    went = delivery.select("minute", "queue", "subscription", (-settled).alias("change"))
    changes = (
        came.unionByName(went)
        .groupBy("minute", "queue", "subscription")
        .agg(F.sum("change").alias("change"))
    )
    before = Window.partitionBy("queue", "subscription").orderBy("minute")
    return changes.select(
        "minute", "queue", "subscription", F.sum("change").over(before).alias("backlog")
    ).orderBy("minute", "queue", "subscription")


def _talkers(days: DataFrame) -> DataFrame:
    by_size = Window.partitionBy("day").orderBy(F.desc("bytes"), "queue", "topic", "tenant")
    ranked = days.withColumn("rank", F.row_number().over(by_size))
    return ranked.where(F.col("rank") <= _TALKERS).orderBy("day", "rank")
