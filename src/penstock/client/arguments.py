"""Arguments, checked here where a wrong one would hang, or mean something else to the server."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from penstock.errors import InvalidArgument

__all__ = ["check_count", "check_finite", "check_seconds", "listed"]

_Item = TypeVar("_Item")


def check_seconds(name: str, seconds: float, *, least: float = 0.0) -> None:
    """Raises `InvalidArgument` unless it is a finite number, and at least ``least``.

    JSON cannot express infinity or NaN: they would be sent as null, which means not given.
    """
    is_number = isinstance(seconds, int | float) and math.isfinite(seconds)
    if not is_number or seconds < least:
        raise InvalidArgument(f"{name} is {seconds!r}: use a number of seconds, {least:g} or more")


def check_finite(settings: object, where: str = "a value") -> None:
    """Raises `InvalidArgument` for infinity and NaN, for the same reason: null means no limit."""
    if isinstance(settings, msgspec.Struct):
        settings = msgspec.structs.asdict(settings)
    if isinstance(settings, Mapping):
        for name, value in settings.items():
            check_finite(value, str(name))
    elif isinstance(settings, float) and not math.isfinite(settings):
        raise InvalidArgument(f"{where} is {settings}: use a finite number")


def check_count(name: str, count: int) -> None:
    """Raises `InvalidArgument` unless it is 1 or more."""
    if not isinstance(count, int) or count < 1:
        raise InvalidArgument(f"{name} is {count!r}: use 1 or more")


def listed(name: str, items: Iterable[_Item], one: type | tuple[type, ...]) -> list[_Item]:
    """Any iterable as a list. Raises `InvalidArgument` for a single item outside of one."""
    if isinstance(items, one) or not isinstance(items, Iterable):
        raise InvalidArgument(f"{name} is {type(items).__name__}: pass a list of them")
    return list(items)
