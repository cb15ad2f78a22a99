"""The report: one page, made of gold tables."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.pipeline import svg
from penstock.pipeline.gold import gold_path
from penstock.pipeline.lake import Lake
from penstock.pipeline.report import Report, write_report

NOON = datetime(2020, 1, 31, 12, tzinfo=UTC)


def put(lake: Lake, table: str, rows: list[dict[str, Any]], day: str = "2020-01-31") -> None:
    with (gold_path(lake, table) / f"day={day}" / "figures.parquet").write() as file:
        pq.write_table(pa.Table.from_pylist(rows), file)


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
    put(lake, "dead_letters", [{**reader, "reason": "<no> card", "dead": 7}])
    put(
        lake,
        "top_talkers",
        [{"queue": "orders", "tenant": "acme", "topic": None, "bytes": 5_000_000}],
    )
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
    target = write_report(full, plots=full.root / "plots")

    assert target.exists()
    plots = {file.name: file.read() for file in (full.root / "plots").files()}
    assert list(plots) == [
        "ack-latency.svg",
        "backlog.svg",
        "dead-letters.svg",
        "latency.svg",
        "talkers.svg",
        "throughput.svg",
    ]
    for text in plots.values():
        assert ET.fromstring(text).tag.endswith("svg")


def test_a_reason_with_characters_of_a_terminal_leaves_a_plot_that_parses(full: Lake) -> None:
    reason = "\x1b[31mno <card>\x1b[0m\x00\ufffe"
    put(full, "dead_letters", [{"queue": "q", "subscription": "s", "reason": reason, "dead": 1}])

    plot = ET.fromstring(Report(full).plots()["dead-letters"])

    assert "q: \ufffd[31mno <card>\ufffd[0m\ufffd\ufffd" in "".join(plot.itertext())


def test_what_was_before_the_last_24_hours_is_left_out_of_every_plot(full: Lake) -> None:
    """Also where nothing newer has happened since."""
    later = NOON + timedelta(days=3)
    reader = {"queue": "orders", "subscription": "billing"}
    put(full, "backlog_minute", [{"minute": later, **reader, "backlog": 0}], "2020-02-03")

    report = Report(full)

    assert report.attention() == []
    for name in ("throughput", "latency", "ack-latency", "talkers"):
        assert "nothing yet" in report.plots()[name]
    assert "up to 2020-02-03 12:00 UTC" in report.html()


def test_dead_letters_of_before_midnight_still_need_attention_after_it(full: Lake) -> None:
    reader = {"queue": "orders", "subscription": "billing"}
    after_midnight = NOON + timedelta(hours=12, minutes=5)
    put(full, "backlog_minute", [{"minute": after_midnight, **reader, "backlog": 0}], "2020-02-01")
    put(full, "dead_letters", [{**reader, "reason": "<no> card", "dead": 1}], "2020-02-01")

    assert ("8 dead letters", "orders: <no> card") in Report(full).attention()


def test_a_clock_that_was_years_ahead_hides_nothing(full: Lake) -> None:
    before = Report(full).html()
    reader = {"queue": "orders", "subscription": "billing"}
    for year in (2130, 2131):
        minute = NOON.replace(year=year)
        put(full, "backlog_minute", [{"minute": minute, **reader, "backlog": 9}], f"{year}-01-31")

    assert Report(full).plots()["throughput"] in before
    assert Report(full).plots()["backlog"] in before


def test_a_backlog_that_stays_as_it_is_does_not_grow(lake: Lake) -> None:
    reader = {"queue": "orders", "subscription": "billing"}
    minutes = [NOON + timedelta(minutes=n) for n in range(3)]
    put(lake, "backlog_minute", [{"minute": m, **reader, "backlog": 5} for m in minutes])

    assert Report(lake).attention() == []


def test_between_two_publishes_nothing_is_published(lake: Lake) -> None:
    hours = [NOON, NOON + timedelta(hours=1)]
    put(lake, "traffic_minute", [{"minute": m, "queue": "q", "published": 100} for m in hours])

    plot = ET.fromstring(Report(lake).plots()["throughput"])

    line = plot.find("{*}polyline").attrib["points"].split()  # type: ignore[union-attr]
    before, low, still_low, after = (float(point.split(",")[1]) for point in line)
    assert before == after < low == still_low


def test_an_empty_lake_has_a_report_too(lake: Lake) -> None:
    page = Report(lake).html()

    assert "there are no figures yet" in page
    assert page.count("nothing yet") == 5
    assert page.count("which a queue tells if its setting events is on") == 2
    assert "Nothing has been landed yet" in page


def test_more_series_than_colours_are_counted() -> None:
    series = [svg.Series(f"queue-{n}", [(NOON, float(n))]) for n in range(20)]

    text = svg.lines("Many", series, "messages")

    assert "queue-19" in text
    assert "queue-2<" not in text
    assert "and 13 more" in text


def test_one_slow_minute_does_not_hide_the_others() -> None:
    minutes = [NOON + timedelta(minutes=n) for n in range(3)]
    series = [svg.Series("p99", list(zip(minutes, [5.0, 100_000.0, 7.0], strict=True)))]

    text = svg.bands("Latency", series)

    # Powers of ten, from the one below the lowest to the one above the highest.
    for label in ("1 ms", "10 ms", "100 ms", "1 s", "10 s", "100 s"):
        assert f">{label}<" in text
    points = ET.fromstring(text).find("{*}polyline").attrib["points"].split()  # type: ignore[union-attr]
    heights = [float(point.split(",")[1]) for point in points]
    assert heights[0] > heights[2] > heights[1]
    assert heights[0] - heights[2] > 1  # 5 and 7 can be told apart beside 100,000


def test_a_long_name_keeps_its_beginning_and_its_end() -> None:
    name = "payments-captured-by-the-external-provider / the-subscription-of-the-accounting-office"

    text = svg.lines("Backlog", [svg.Series(name, [(NOON, 1.0)])], "messages")

    root = ET.fromstring(text)
    shown = [each.text or "" for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert any(each.startswith("payments") and each.endswith("office") for each in shown)
    assert name in text  # as a tooltip


def test_times_on_the_axis_are_round() -> None:
    points = [(NOON + timedelta(minutes=7 + n), 1.0) for n in range(290)]

    text = svg.lines("Published", [svg.Series("a", points)], "messages/min")

    assert [hour for hour in ("13:00", "14:00", "15:00", "16:00") if f">{hour}<" in text] == [
        "13:00",
        "14:00",
        "15:00",
        "16:00",
    ]
