"""Plots as SVG texts: lines over time, a band between quantiles, bars. No library, no scripts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from html import escape
from math import ceil, floor, log10
from typing import NamedTuple

__all__ = ["Series", "bands", "bars", "lines"]

_WIDTH, _HEIGHT = 860, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 16, 34, 46
# Told apart by those who do not see red and green as different (after Okabe and Ito).
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f")
_LETTERS = "font-family='system-ui,sans-serif' font-size='12' fill='currentColor'"
_GRID = "stroke='currentColor' stroke-opacity='0.15'"
_MOST_SERIES = len(_COLOURS)
_STEPS = (1, 2, 5, 10)


class Series(NamedTuple):
    """A name and its points, by time."""

    name: str
    points: list[tuple[datetime, float]]


def lines(title: str, series: Sequence[Series], unit: str) -> str:
    """One line a series; of many, those with the highest points, and the number of the others."""
    ranked = sorted(series, key=lambda each: -max((y for _, y in each.points), default=0.0))
    shown, left = ranked[:_MOST_SERIES], len(ranked[_MOST_SERIES:])
    frame = _Frame(title, [point for each in shown for point in each.points], unit)
    for each, colour in zip(shown, _COLOURS, strict=False):
        path = " ".join(f"{frame.x(at):.1f},{frame.y(value):.1f}" for at, value in each.points)
        frame.add(
            f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='2' "
            f"stroke-linejoin='round'><title>{escape(each.name)}</title></polyline>"
        )
        if len(each.points) == 1:
            (at, value) = each.points[0]
            frame.add(
                f"<circle cx='{frame.x(at):.1f}' cy='{frame.y(value):.1f}' r='3' fill='{colour}'/>"
            )
    frame.legend([each.name for each in shown] + ([f"and {left} more"] if left else []))
    return frame.text()


def bands(title: str, series: Sequence[Series], unit: str) -> str:
    """Quantiles from the lowest to the highest, the space between the outer two filled."""
    frame = _Frame(title, [point for each in series for point in each.points], unit)
    if series and series[0].points:
        low, high = series[0].points, series[-1].points
        around = [*low, *reversed(high)]
        path = " ".join(f"{frame.x(at):.1f},{frame.y(value):.1f}" for at, value in around)
        frame.add(f"<polygon points='{path}' fill='{_COLOURS[0]}' fill-opacity='0.15'/>")
    for each, colour in zip(series, _COLOURS, strict=False):
        path = " ".join(f"{frame.x(at):.1f},{frame.y(value):.1f}" for at, value in each.points)
        frame.add(
            f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='2'>"
            f"<title>{escape(each.name)}</title></polyline>"
        )
    frame.legend([each.name for each in series])
    return frame.text()


def bars(title: str, values: Sequence[tuple[str, float]], unit: str) -> str:
    """One bar a value, the longest first."""
    ranked = sorted(values, key=lambda each: (-each[1], each[0]))[:12]
    row, top = 26, _TOP + 6
    height = top + row * max(len(ranked), 1) + 12
    label = 300
    most = max((value for _, value in ranked), default=0.0) or 1.0
    parts = [_open(height, title)]
    if not ranked:
        parts.append(_nothing(height))
    for place, (name, value) in enumerate(ranked):
        y = top + row * place
        width = (_WIDTH - label - 130) * value / most
        shown = name if len(name) <= 44 else name[:43] + "…"
        parts.append(
            f"<text x='{label - 8}' y='{y + 15}' text-anchor='end' {_LETTERS}>{escape(shown)}"
            f"<title>{escape(name)}</title></text>"
            f"<rect x='{label}' y='{y + 3}' width='{width:.1f}' height='{row - 9}' rx='2' "
            f"fill='{_COLOURS[1]}'/>"
            f"<text x='{label + width + 6:.1f}' y='{y + 15}' {_LETTERS}>"
            f"{_number(value)} {unit}</text>"
        )
    return "".join([*parts, "</svg>"])


class _Frame:
    """Axes, grid and scale for points in time."""

    def __init__(self, title: str, points: list[tuple[datetime, float]], unit: str) -> None:
        self._parts = [_open(_HEIGHT, title)]
        self._begin = min((at for at, _ in points), default=None)
        self._span = timedelta(0)
        self._most = 1.0
        if self._begin is None:
            self._parts.append(_nothing(_HEIGHT))
            return
        self._span = max(at for at, _ in points) - self._begin
        step = _step(max(value for _, value in points) or 1.0)
        self._most = step * max(1, ceil(max(value for _, value in points) / step))
        for tick in range(round(self._most / step) + 1):
            y = self.y(tick * step)
            self._parts.append(
                f"<line x1='{_LEFT}' x2='{_WIDTH - _RIGHT}' y1='{y:.1f}' y2='{y:.1f}' {_GRID}/>"
                f"<text x='{_LEFT - 8}' y='{y + 4:.1f}' text-anchor='end' {_LETTERS}>"
                f"{_number(tick * step)}</text>"
            )
        self._parts.append(
            f"<text x='{_WIDTH - _RIGHT}' y='18' text-anchor='end' {_LETTERS}>{unit}</text>"
        )
        form = "%d %b %H:%M" if self._span > timedelta(hours=20) else "%H:%M"
        ticks = 5 if self._span else 0
        for tick in range(ticks + 1):
            at = self._begin + self._span * tick / (ticks or 1)
            anchor = "start" if tick == 0 else "end" if tick == ticks else "middle"
            self._parts.append(
                f"<text x='{self.x(at):.1f}' y='{_HEIGHT - _BOTTOM + 18}' text-anchor='{anchor}' "
                f"{_LETTERS}>{at.strftime(form)}</text>"
            )

    def x(self, at: datetime) -> float:
        if self._begin is None or not self._span:
            return (_LEFT + _WIDTH - _RIGHT) / 2
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * ((at - self._begin) / self._span)

    def y(self, value: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * max(value, 0.0) / self._most

    def add(self, part: str) -> None:
        self._parts.append(part)

    def legend(self, names: Sequence[str]) -> None:
        x = float(_LEFT)
        for place, name in enumerate(names):
            shown = name if len(name) <= 24 else name[:23] + "…"
            if place < _MOST_SERIES:
                colour = _COLOURS[place]
                self.add(
                    f"<rect x='{x:.0f}' y='{_HEIGHT - 18}' width='11' height='11' fill='{colour}'/>"
                )
            self.add(f"<text x='{x + 16:.0f}' y='{_HEIGHT - 8}' {_LETTERS}>{escape(shown)}</text>")
            x += 30 + 7 * len(shown)

    def text(self) -> str:
        return "".join([*self._parts, "</svg>"])


def _open(height: int, title: str) -> str:
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {_WIDTH} {height}' role='img' "
        f"style='max-width:100%;color:#666'><title>{escape(title)}</title>"
        f"<text x='{_LEFT}' y='18' {_LETTERS} font-weight='600'>{escape(title)}</text>"
    )


def _nothing(height: int) -> str:
    place = f"x='{_WIDTH / 2}' y='{height / 2}' text-anchor='middle'"
    return f"<text {place} {_LETTERS}>nothing yet</text>"


def _step(most: float) -> float:
    """A round number of which about five make ``most``."""
    rough = most / 5
    power = 10.0 ** floor(log10(rough))
    return next(step * power for step in _STEPS if step * power >= rough * 0.999)


def _number(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"
