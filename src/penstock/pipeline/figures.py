"""What gold counts, and the tables that are made of it.

A *state* has sums and sketches for each minute. Both can be merged: new rows are added to what is
there, minutes are added up to days, and tenants to a queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

__all__ = [
    "BACKLOG",
    "DELIVERY",
    "EVENT_COLUMNS",
    "LETTERS",
    "STATES",
    "TABLES",
    "TRAFFIC",
    "State",
    "deliveries",
    "letters",
    "tables",
    "tenant",
    "traffic",
]

_TALKERS = 20
_QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_COUNTS = ("delivered", "redelivered", "acked", "nacked", "expired", "dead", "replayed")
_SKETCHES = ("first_delivery", "ack")
# Of an event, what `deliveries` needs besides the topic and the tenant of its message.
EVENT_COLUMNS = {
    "queue": "string",
    "index": "bigint",
    "event": "string",
    "subscription": "string",
    "deliveries": "int",
    "published_at": "timestamp",
    "at": "timestamp",
}


class _Value(NamedTuple):
    """The type of a column, and how two values of it become one."""

    type: str
    merge: Callable[[str], Column]


_SUM = _Value("bigint", F.sum)
_SKETCH = _Value("binary", F.kll_merge_agg_bigint)
_LAST = _Value("struct<at: timestamp, backlog: bigint>", F.max)


class State(NamedTuple):
    """Its keys besides the minute, and its values."""

    name: str
    keys: tuple[str, ...]
    values: dict[str, _Value]

    @property
    def columns(self) -> dict[str, str]:
        """With their types."""
        keys = {"minute": "timestamp"} | dict.fromkeys(self.keys, "string")
        return keys | {name: value.type for name, value in self.values.items()}

    def merged(self, rows: DataFrame) -> DataFrame:
        return _merged(rows, ("minute", *self.keys), self.values)


def _merged(rows: DataFrame, keys: Iterable[str], values: Mapping[str, _Value]) -> DataFrame:
    """One row for each of the keys."""
    return rows.groupBy(*keys).agg(
        *(value.merge(name).alias(name) for name, value in values.items())
    )


TRAFFIC = State("traffic", ("queue", "topic", "tenant"), {"published": _SUM, "bytes": _SUM})
DELIVERY = State(
    "delivery",
    ("queue", "subscription", "topic", "tenant"),
    dict.fromkeys(_COUNTS, _SUM) | dict.fromkeys(_SKETCHES, _SKETCH),
)
LETTERS = State("letters", ("queue", "subscription", "reason"), {"dead": _SUM})
BACKLOG = State("backlog", ("queue", "subscription"), {"last": _LAST})
STATES = (TRAFFIC, DELIVERY, LETTERS, BACKLOG)


class Table(NamedTuple):
    """The states that it is made from, and the columns by which it is sorted."""

    states: tuple[State, ...]
    keys: tuple[str, ...]


TABLES = {
    "traffic_minute": Table((TRAFFIC, DELIVERY), ("minute", *TRAFFIC.keys)),
    "traffic_day": Table((TRAFFIC, DELIVERY), TRAFFIC.keys),
    "delivery_minute": Table((DELIVERY,), ("minute", "queue", "subscription")),
    "delivery_day": Table((DELIVERY,), ("queue", "subscription")),
    "dead_letters": Table((LETTERS,), LETTERS.keys),
    "backlog_minute": Table((BACKLOG,), ("minute", *BACKLOG.keys)),
    "top_talkers": Table((TRAFFIC,), ("rank",)),
}


# From rows to states.


def _minute(column: str) -> Column:
    return F.date_trunc("minute", F.col(column)).alias("minute")


def tenant() -> Column:
    """Of a message."""
    return F.try_element_at("attributes", F.lit("tenant")).alias("tenant")


def traffic(messages: DataFrame) -> DataFrame:
    return messages.groupBy(_minute("created_at"), "queue", "topic", tenant()).agg(
        F.count("*").alias("published"), F.sum(F.length("body")).alias("bytes")
    )


def deliveries(events: DataFrame) -> DataFrame:
    """From events of subscriptions, with the topic and the tenant of their messages."""
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
    return events.groupBy(_minute("at"), *DELIVERY.keys).agg(
        *(F.count_if(counted[name]).alias(name) for name in _COUNTS),
        F.kll_sketch_agg_bigint(F.when(is_first, micros)).alias("first_delivery"),
        F.kll_sketch_agg_bigint(F.when(event == "acked", micros)).alias("ack"),
    )


def letters(events: DataFrame) -> DataFrame:
    dead = events.where(F.col("event") == "dead_lettered")
    reason = F.coalesce(F.col("reason"), F.lit("")).alias("reason")
    return dead.groupBy(_minute("at"), "queue", "subscription", reason).agg(
        F.count("*").alias("dead")
    )


# From states to tables. A table of a day is made of what the states have of that day.


def tables(states: Mapping[str, DataFrame], own: str) -> dict[str, DataFrame]:
    """The tables, each with a column `day`.

    ``own`` is the pipeline's subscription, which counts only where subscriptions are told apart.
    """
    rows = {
        name: state.withColumn("day", F.to_date("minute").cast("string"))
        for name, state in states.items()
    }
    traffic = _all_traffic(rows[TRAFFIC.name], rows[DELIVERY.name], own)
    return {
        "traffic_minute": _shown(traffic, TABLES["traffic_minute"].keys),
        "traffic_day": _shown(traffic, TABLES["traffic_day"].keys),
        "delivery_minute": _shown(rows[DELIVERY.name], TABLES["delivery_minute"].keys),
        "delivery_day": _shown(rows[DELIVERY.name], TABLES["delivery_day"].keys),
        "dead_letters": _merged(rows[LETTERS.name], ("day", *LETTERS.keys), LETTERS.values),
        "backlog_minute": rows[BACKLOG.name].select(
            "day", "minute", *BACKLOG.keys, F.col("last")["backlog"].alias("backlog")
        ),
        "top_talkers": _talkers(rows[TRAFFIC.name]),
    }


def _all_traffic(published: DataFrame, delivery: DataFrame, own: str) -> DataFrame:
    """What was published, and what became of it."""
    others = delivery.where(F.col("subscription") != own).drop("subscription")
    both = published.unionByName(others, allowMissingColumns=True)
    return both.fillna(0, list(TRAFFIC.values))


def _shown(rows: DataFrame, keys: tuple[str, ...]) -> DataFrame:
    """One row for each day and each of the keys. Sketches become quantiles in milliseconds."""
    values = TRAFFIC.values | DELIVERY.values
    present = {name: value for name, value in values.items() if name in rows.columns}
    merged = _merged(rows, ("day", *keys), present)
    columns = [F.col(name) for name in merged.columns if name not in _SKETCHES]
    for sketch in _SKETCHES:
        columns += _quantiles(sketch)
    return merged.select(*columns)


def _quantiles(sketch: str) -> Iterable[Column]:
    has_any = F.kll_sketch_get_n_bigint(sketch) > 0
    for name, rank in _QUANTILES.items():
        micros = F.kll_sketch_get_quantile_bigint(sketch, F.lit(rank))
        yield F.when(has_any, micros / 1000).alias(f"{sketch}_{name}_ms")


def _talkers(traffic: DataFrame) -> DataFrame:
    days = _merged(traffic, ("day", *TRAFFIC.keys), TRAFFIC.values)
    by_size = Window.partitionBy("day").orderBy(F.desc("bytes"), *TRAFFIC.keys)
    ranked = days.select("day", F.row_number().over(by_size).alias("rank"), *days.columns[1:])
    return ranked.where(F.col("rank") <= _TALKERS)
