"""The report: one self-contained page, made from the gold tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from html import escape
from itertools import pairwise
from typing import Any

import pyarrow.parquet as pq

from penstock.clock import SystemClock
from penstock.core.message import to_datetime
from penstock.pipeline import svg
from penstock.pipeline.gold import gold_path
from penstock.pipeline.lake import Lake
from penstock.pipeline.place import Place, place_of
from penstock.pipeline.status import Status, status_of

__all__ = ["Report", "write_report"]

Row = dict[str, Any]
_Point = tuple[datetime, float]

_MINUTES = 24 * 60
_EVER = datetime.min.replace(tzinfo=UTC)
_SLOW_MS = 60_000.0
_POINTS = 480
_NO_EVENTS = "nothing yet: it is made of events, which a queue tells if its setting events is on"


class Report:
    """The last 24 hours in gold, as plots and as a list of what needs attention."""

    def __init__(self, lake: Lake) -> None:
        self._status = status_of(lake)
        tomorrow = to_datetime(SystemClock().now_ns()).date() + timedelta(days=1)
        traffic, delivery, backlog, letters, talkers = (
            _rows(lake, name, tomorrow)
            for name in (
                *("traffic_minute", "delivery_minute", "backlog_minute"),
                *("dead_letters", "top_talkers"),
            )
        )
        minutes = [row["minute"] for row in (*traffic, *delivery, *backlog)]
        self._newest = max(minutes, default=None)
        since = self._newest - timedelta(minutes=_MINUTES) if self._newest else _EVER
        self._traffic = _after(since, traffic)
        self._delivery = _after(since, delivery)
        self._backlog = _after(since, backlog)
        # They have no minute, and none of the 24 hours may be missing: all of both days.
        self._letters = [row for row in letters if row["day"] >= since.date()]
        self._talkers = _last_day(since, talkers)

    def plots(self) -> dict[str, str]:
        """The plots as SVG, by file name."""
        return {
            "throughput": svg.lines(
                "Published, messages a minute",
                _series(self._traffic, lambda r: r["queue"], "published", sum, is_rate=True),
                "messages/min",
            ),
            "latency": svg.bands(
                "From publish to first delivery",
                self._quantiles("first_delivery"),
                _NO_EVENTS,
            ),
            "ack-latency": svg.bands("From publish to ack", self._quantiles("ack"), _NO_EVENTS),
            "backlog": svg.lines(
                "Backlog: not settled yet",
                _series(self._backlog, _reader, "backlog", max),
                "messages",
            ),
            "dead-letters": svg.bars(
                "Dead letters by reason, of the last two days",
                _by_reason(self._letters),
                "messages",
                "none",
            ),
            "talkers": svg.bars(
                "Top talkers, by bytes of the last day", _by_talker(self._talkers), "bytes"
            ),
        }

    def _quantiles(self, what: str) -> list[svg.Series]:
        """The worst of all subscriptions in each minute."""
        return [
            svg.Series(name, series[0].points)
            for name in ("p50", "p95", "p99")
            if (series := _series(self._delivery, lambda _: "", f"{what}_{name}_ms", max))
        ]

    def attention(self) -> list[tuple[str, str]]:
        """What needs attention, and where; the worst kinds first."""
        found = []
        for name, count in sorted(_by_reason(self._letters), key=lambda each: -each[1]):
            found.append((f"{count:,.0f} dead letters", name))
        rejected = sum(each.rows for each in self._status.tables if each.table == "rejects")
        if rejected:
            found.append((f"{rejected:,} bodies could not be parsed", "see the table rejects"))
        for each in _series(self._backlog, _reader, "backlog", max):
            values = [value for _, value in each.points]
            if values[-1] > values[0] and values[-1] >= max(values):
                found.append((f"a backlog of {values[-1]:,.0f} that grows", each.name))
        for each in _series(self._delivery, _reader, "first_delivery_p99_ms", max):
            worst = max(value for _, value in each.points)
            if worst >= _SLOW_MS:
                found.append((f"a first delivery took {worst / 1000:,.0f} s (p99)", each.name))
        for job, batches in self._status.behind.items():
            if batches > 1:
                found.append((f"{job} is {batches} batches behind bronze", "run the pipeline"))
        return found

    def html(self) -> str:
        plots = "".join(f"<figure>{text}</figure>" for text in self.plots().values())
        return _PAGE.format(
            lake=escape(self._status.lake),
            until=_until(self._newest),
            attention=_table(("what", "where"), self.attention()) or "<p>Nothing.</p>",
            plots=plots,
            tables=_tables(self._status) or "<p>Nothing has been landed yet.</p>",
        )


def write_report(
    lake: Lake, target: Place | str | None = None, *, plots: Place | str | None = None
) -> Place:
    """Write the page, by default into the lake, and each plot as an SVG file into ``plots``."""
    report = Report(lake)
    page = place_of(target) if target is not None else lake.root / "report.html"
    page.replace(report.html().encode())
    if plots is not None:
        for name, text in report.plots().items():
            (place_of(plots) / f"{name}.svg").replace(text.encode())
    return page


def _rows(lake: Lake, table: str, tomorrow: date) -> list[Row]:
    """Of the last two days. A clock that was years ahead for a while does not hide the others."""
    days = {_day(place): place for place in gold_path(lake, table).children()}
    rows: list[Row] = []
    for day in [day for day in sorted(days) if day <= tomorrow][-2:]:
        for each in days[day].files(".parquet"):
            with each.open() as file:
                rows += [{**row, "day": day} for row in pq.read_table(file).to_pylist()]
    return rows


def _day(place: Place) -> date:
    return date.fromisoformat(place.name.removeprefix("day="))


def _after(since: datetime, rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["minute"] > since]


def _last_day(since: datetime, rows: list[Row]) -> list[Row]:
    """Of the last day that has any, unless that was over by then."""
    last = max((row["day"] for row in rows), default=since.date())
    return [row for row in rows if row["day"] == last >= since.date()]


def _reader(row: Row) -> str:
    return f"{row['queue']} / {row['subscription']}"


def _series(
    rows: list[Row],
    name: Callable[[Row], str],
    column: str,
    join: Callable[[list[float]], float],
    *,
    is_rate: bool = False,
) -> list[svg.Series]:
    """``is_rate``: it is 0 in minutes without a row, not somewhere between its neighbours."""
    values: dict[str, dict[datetime, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row[column] is not None:
            values[name(row)][row["minute"]].append(float(row[column]))
    found = []
    for key, by_minute in sorted(values.items()):
        points = [(at, join(by_minute[at])) for at in sorted(by_minute)]
        found.append(svg.Series(key, _thin(_with_zeros(points) if is_rate else points)))
    return found


def _with_zeros(points: list[_Point]) -> list[_Point]:
    """With a 0 at both ends of each time without points."""
    minute = timedelta(minutes=1)
    found = points[:1]
    for (before, _), (at, value) in pairwise(points):
        if at - before > minute:
            found += [(before + minute, 0.0), (at - minute, 0.0)]
        found.append((at, value))
    return found


def _thin(points: list[_Point]) -> list[_Point]:
    """Reduce the points to as many as can be told apart: the maximum of every few."""
    every = -(-len(points) // _POINTS)
    groups = [points[at : at + every] for at in range(0, len(points), every)] if points else []
    return [(group[0][0], max(value for _, value in group)) for group in groups]


def _by_reason(rows: list[Row]) -> list[tuple[str, float]]:
    counts: dict[str, float] = defaultdict(float)
    for row in rows:
        counts[f"{row['queue']}: {row['reason'] or 'no reason given'}"] += row["dead"]
    return list(counts.items())


def _by_talker(rows: list[Row]) -> list[tuple[str, float]]:
    return [
        (
            " / ".join(str(row[key]) for key in ("queue", "tenant", "topic") if row[key]),
            row["bytes"],
        )
        for row in rows
    ]


def _until(newest: datetime | None) -> str:
    return f"up to {newest:%Y-%m-%d %H:%M} UTC" if newest else "there are no figures yet"


def _tables(status: Status) -> str:
    rows = [(t.table, f"{t.rows:,}", f"{t.files:,}", f"{t.bytes:,}") for t in status.tables]
    return _table(("table", "rows", "files", "bytes"), rows)


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    if not rows:
        return ""
    cells = "".join(f"<th>{escape(name)}</th>" for name in head)
    lines = "".join(
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{lines}</tbody></table>"


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Penstock: report</title>
<meta name="viewport" content="width=device-width">
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 900px;
  padding: 0 1rem; }}
h1 {{ font-size: 1.4rem; margin-bottom: 0; }}
h2 {{ font-size: 1.1rem; margin-top: 2rem; }}
figure {{ margin: 1rem 0; }}
table {{ border-collapse: collapse; width: 100%; }}
th, td {{ text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #8884; }}
td:first-child {{ white-space: nowrap; }}
td {{ overflow-wrap: anywhere; }}
@media (max-width: 600px) {{ td:first-child {{ white-space: normal; }} }}
.about {{ color: #767676; margin-top: 0; overflow-wrap: anywhere; }}
</style></head><body>
<h1>Queues, the last 24 hours</h1>
<p class="about">{lake}, {until}</p>
<h2>What needs attention</h2>
{attention}
<h2>Figures</h2>
{plots}
<h2>The lake</h2>
{tables}
</body></html>
"""
