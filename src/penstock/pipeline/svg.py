"""Plots as SVG: lines over time, a band between quantiles, bars. No library, no scripts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from html import escape
from math import ceil, floor, log10
from typing import NamedTuple

__all__ = ["Series", "bands", "bars", "lines"]

_WIDTH, _HEIGHT, _EMPTY_HEIGHT = 860, 300, 70
_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 16, 34, 28
_LEGEND_ROW = 20
# Distinguishable with red-green colour blindness (after Okabe and Ito).
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f")
# Readable on white and on black.
_INK = "#767676"
_LETTERS = "font-family='system-ui,sans-serif' font-size='12' fill='currentColor'"
_GRID = "stroke='currentColor' stroke-opacity='0.2'"
_MOST_SERIES = len(_COLOURS)
_STEPS = (1, 2, 5, 10)
_MINUTES = (1, 2, 5, 10, 15, 30, 60, 120, 180, 240, 360, 720, 1440)


# What must not be in XML, even escaped.
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Series(NamedTuple):
    """A name and its points, by time."""

    name: str
    points: list[tuple[datetime, float]]


def lines(title: str, series: Sequence[Series], unit: str, empty: str = "nothing yet") -> str:
    """A line per series. If there are too many, those with the highest points are shown."""
    ranked = sorted(series, key=lambda each: -max((y for _, y in each.points), default=0.0))
    shown, left = ranked[:_MOST_SERIES], len(ranked[_MOST_SERIES:])
    if not shown:
        return _nothing(title, empty)
    names = [each.name for each in shown] + ([f"and {left} more"] if left else [])
    points = [point for each in shown for point in each.points]
    frame = _Frame(title, names, points, _Linear(max(value for _, value in points)), unit)
    for each, colour in zip(shown, _COLOURS, strict=False):
        frame.line(each, colour)
    return frame.text()


def bands(title: str, series: Sequence[Series], empty: str = "nothing yet") -> str:
    """Quantiles in milliseconds, lowest first; the area between the outer two is filled.

    The axis is logarithmic, so that one slow minute does not hide the others.
    """
    if not series:
        return _nothing(title, empty)
    points = [point for each in series for point in each.points]
    values = [value for _, value in points]
    frame = _Frame(title, [each.name for each in series], points, _Tens(values), "")
    frame.fill([*series[0].points, *reversed(series[-1].points)])
    for each, colour in zip(series, _COLOURS, strict=False):
        frame.line(each, colour)
    return frame.text()


def bars(
    title: str, values: Sequence[tuple[str, float]], unit: str, empty: str = "nothing yet"
) -> str:
    """A bar per value, longest first."""
    ranked = sorted(values, key=lambda each: (-each[1], each[0]))[:12]
    if not ranked:
        return _nothing(title, empty)
    row, top, label = 26, _TOP + 6, 320
    height = top + row * len(ranked) + 12
    most = ranked[0][1] or 1.0
    parts = [_open(height, title)]
    for place, (name, value) in enumerate(ranked):
        y = top + row * place
        width = max((_WIDTH - label - 130) * value / most, 1.0)
        parts.append(
            f"<text x='{label - 8}' y='{y + 15}' text-anchor='end' {_LETTERS}>"
            f"{_escaped(_shortened(name, 44))}<title>{_escaped(name)}</title></text>"
            f"<rect x='{label}' y='{y + 3}' width='{width:.1f}' height='{row - 9}' rx='2' "
            f"fill='{_COLOURS[1]}'/>"
            f"<text x='{label + width + 6:.1f}' y='{y + 15}' {_LETTERS}>"
            f"{_amount(value, unit)}</text>"
        )
    return "".join([*parts, "</svg>"])


class _Linear:
    """From 0 to the round number above the highest value, in about five steps."""

    def __init__(self, highest: float) -> None:
        highest = highest if highest > 0 else 1.0
        rough = highest / 5
        power = 10.0 ** floor(log10(rough))
        step = next(step * power for step in _STEPS if step * power >= rough * 0.999)
        steps = max(1, ceil(highest / step))
        self._most = step * steps
        self.ticks = [(tick * step, _number(tick * step)) for tick in range(steps + 1)]

    def share(self, value: float) -> float:
        """How far up it is, from 0 to 1."""
        return max(value, 0.0) / self._most


class _Tens:
    """Milliseconds, in powers of ten."""

    def __init__(self, values: Sequence[float]) -> None:
        low = min((value for value in values if value > 0), default=1.0)
        self._low = floor(log10(low))
        self._high = max(ceil(log10(max([*values, low]))), self._low + 1)
        powers = range(self._low, self._high + 1)
        self.ticks = [(10.0**power, _time(10.0**power)) for power in powers]

    def share(self, value: float) -> float:
        place = log10(max(value, 10.0**self._low))
        return (place - self._low) / (self._high - self._low)


class _Frame:
    """Axes, grid, legend, and what is drawn inside."""

    def __init__(
        self,
        title: str,
        names: Sequence[str],
        points: Sequence[tuple[datetime, float]],
        scale: _Linear | _Tens,
        unit: str,
    ) -> None:
        self._scale = scale
        self._begin = min(at for at, _ in points)
        self._span = max(at for at, _ in points) - self._begin
        rows = _rows(names)
        self._floor = _HEIGHT - _BOTTOM - _LEGEND_ROW
        self._parts = [_open(_HEIGHT + _LEGEND_ROW * (len(rows) - 1), title)]
        for value, text in scale.ticks:
            y = self._y(value)
            self._parts.append(
                f"<line x1='{_LEFT}' x2='{_WIDTH - _RIGHT}' y1='{y:.1f}' y2='{y:.1f}' {_GRID}/>"
                f"<text x='{_LEFT - 8}' y='{y + 4:.1f}' text-anchor='end' {_LETTERS}>{text}</text>"
            )
        self._parts.append(
            f"<text x='{_WIDTH - _RIGHT}' y='18' text-anchor='end' {_LETTERS}>{unit}</text>"
        )
        self._times()
        self._legend(rows)

    def _times(self) -> None:
        """Label the axis at round times."""
        form = "%d %b %H:%M" if self._span > timedelta(hours=20) else "%H:%M"
        every = timedelta(
            minutes=next((m for m in _MINUTES if timedelta(minutes=m) * 6 >= self._span), 1440)
        )
        midnight = self._begin.replace(hour=0, minute=0, second=0, microsecond=0)
        at = midnight + every * ceil((self._begin - midnight) / every)
        while at <= self._begin + self._span:
            x = self._x(at)
            anchor = "start" if x < _LEFT + 40 else "end" if x > _WIDTH - 60 else "middle"
            self._parts.append(
                f"<line x1='{x:.1f}' x2='{x:.1f}' y1='{self._floor}' y2='{self._floor + 4}' "
                f"{_GRID}/>"
                f"<text x='{x:.1f}' y='{self._floor + 18}' text-anchor='{anchor}' {_LETTERS}>"
                f"{at.strftime(form)}</text>"
            )
            at += every

    def _legend(self, rows: list[list[tuple[int, str, float]]]) -> None:
        for number, row in enumerate(rows):
            y = self._floor + _BOTTOM + 12 + _LEGEND_ROW * number
            for place, name, x in row:
                if place < _MOST_SERIES:
                    self._parts.append(
                        f"<rect x='{x:.0f}' y='{y - 10}' width='11' height='11' "
                        f"fill='{_COLOURS[place]}'/>"
                    )
                self._parts.append(
                    f"<text x='{x + 16:.0f}' y='{y}' {_LETTERS}>{_escaped(_shortened(name, 60))}"
                    f"<title>{_escaped(name)}</title></text>"
                )

    def _x(self, at: datetime) -> float:
        if not self._span:
            return (_LEFT + _WIDTH - _RIGHT) / 2
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * ((at - self._begin) / self._span)

    def _y(self, value: float) -> float:
        return self._floor - (self._floor - _TOP) * self._scale.share(value)

    def _path(self, points: Sequence[tuple[datetime, float]]) -> str:
        return " ".join(f"{self._x(at):.1f},{self._y(value):.1f}" for at, value in points)

    def line(self, series: Series, colour: str) -> None:
        self._parts.append(
            f"<polyline points='{self._path(series.points)}' fill='none' stroke='{colour}' "
            f"stroke-width='2' stroke-linejoin='round'>"
            f"<title>{_escaped(series.name)}</title></polyline>"
        )
        if len(series.points) == 1:
            ((at, value),) = series.points
            self._parts.append(
                f"<circle cx='{self._x(at):.1f}' cy='{self._y(value):.1f}' r='3' fill='{colour}'/>"
            )

    def fill(self, around: Sequence[tuple[datetime, float]]) -> None:
        self._parts.append(
            f"<polygon points='{self._path(around)}' fill='{_COLOURS[0]}' fill-opacity='0.15'/>"
        )

    def text(self) -> str:
        return "".join([*self._parts, "</svg>"])


def _rows(names: Sequence[str]) -> list[list[tuple[int, str, float]]]:
    """The rows of a legend: as many names per row as fit, with their numbers and positions."""
    rows: list[list[tuple[int, str, float]]] = [[]]
    x = float(_LEFT)
    for place, name in enumerate(names):
        width = 34 + 6.6 * len(_shortened(name, 60))
        if rows[-1] and x + width > _WIDTH:
            rows.append([])
            x = float(_LEFT)
        rows[-1].append((place, name, x))
        x += width
    return rows


def _open(height: int, title: str) -> str:
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {_WIDTH} {height}' role='img' "
        f"style='max-width:100%;color:{_INK}'><title>{_escaped(title)}</title>"
        f"<text x='{_LEFT}' y='18' {_LETTERS} font-weight='600'>{_escaped(title)}</text>"
    )


def _nothing(title: str, why: str) -> str:
    text = f"<text x='{_LEFT}' y='46' {_LETTERS}>{_escaped(why)}</text>"
    return f"{_open(_EMPTY_HEIGHT, title)}{text}</svg>"


def _escaped(text: str) -> str:
    """For XML. A character that it cannot hold, such as one of a terminal's, becomes U+FFFD."""
    return escape(_NO_XML.sub("\ufffd", text))


def _shortened(name: str, most: int) -> str:
    """Keep the beginning and the end, since long names often begin alike."""
    if len(name) <= most:
        return name
    head = (most - 1) // 2
    return f"{name[:head]}…{name[-(most - 1 - head) :]}"


def _amount(value: float, unit: str) -> str:
    if unit == "bytes" and value >= 1000:
        number = _number(value)
        return f"{number[:-1]} {number[-1]}B"
    return f"{_number(value)} {unit}"


def _time(milliseconds: float) -> str:
    if milliseconds >= 1000:
        return f"{milliseconds / 1000:,.0f} s"
    return f"{milliseconds:g} ms"


def _number(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"
