"""The report: one page, made of gold tables."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.pipeline import svg
from penstock.pipeline.gold import gold_path
from penstock.pipeline.lake import Lake
from penstock.pipeline.report import Report, write_report

NOON = datetime(2030, 1, 31, 12, tzinfo=UTC)


def put(lake: Lake, table: str, rows: list[dict[str, Any]]) -> None:
    path = gold_path(lake, table)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)


@pytest.fixture
def full(lake: Lake) -> Lake:
    minutes = [NOON + timedelta(minutes=n) for n in range(30)]
    put(
        lake,
        "traffic_minute",
        [{"minute": m, "queue": "orders", "published": 100 + n} for n, m in enumerate(minutes)],
    )
    quantiles = {
        f"{what}_{name}_ms": 5.0 * place
        for what in ("first_delivery", "ack")
        for place, name in enumerate(("p50", "p95", "p99"), 1)
    }
    reader = {"queue": "orders", "subscription": "billing"}
    put(lake, "delivery_minute", [{"minute": m, **reader, **quantiles} for m in minutes])
    put(
        lake,
        "backlog_minute",
        [{"minute": m, **reader, "backlog": 10 * n} for n, m in enumerate(minutes)],
    )
    today = {"day": date(2030, 1, 31), "queue": "orders"}
    put(
        lake,
        "dead_letters",
        [{**today, "subscription": "billing", "reason": "<no> card", "dead": 7}],
    )
    put(lake, "top_talkers", [{**today, "tenant": "acme", "topic": None, "bytes": 5_000_000}])
    return lake


def test_the_page_is_whole_and_says_what_needs_attention(full: Lake) -> None:
    report = Report(full)

    page = report.html()

    assert ("7 dead letters", "orders: <no> card") in report.attention()
    assert ("a backlog of 290 that grows", "orders / billing") in report.attention()
    assert "&lt;no&gt; card" in page
    assert page.count("<svg") == 6
    # Nothing is fetched: the name space is the only address.
    assert page.replace("http://www.w3.org/2000/svg", "").count("http") == 0


def test_every_plot_is_a_file_that_parses(full: Lake) -> None:
    target = write_report(full, full.root / "report.html", plots=full.root / "plots")

    assert target.exists()
    names = sorted(path.stem for path in (full.root / "plots").iterdir())
    assert names == [
        "ack-latency",
        "backlog",
        "dead-letters",
        "latency",
        "talkers",
        "throughput",
    ]
    for path in (full.root / "plots").iterdir():
        assert ET.parse(path).getroot().tag.endswith("svg")


def test_an_empty_lake_has_a_report_too(lake: Lake) -> None:
    page = Report(lake).html()

    assert "there are no figures yet" in page
    assert page.count("nothing yet") == 6


def test_more_series_than_colours_are_counted() -> None:
    series = [svg.Series(f"queue-{n}", [(NOON, float(n))]) for n in range(20)]

    text = svg.lines("Many", series, "messages")

    assert "queue-19" in text
    assert "queue-2<" not in text
    assert "and 13 more" in text
