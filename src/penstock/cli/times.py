"""Positions and times that a user types."""

from __future__ import annotations

from datetime import datetime

from penstock.cli import exits

__all__ = ["start_of", "time_of"]


def time_of(name: str, text: str) -> datetime:
    """A time with its zone. Any other text ends the program."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        exits.usage(f"--{name} is {text!r}: use a time with its zone, such as 2030-01-31T12:00:00Z")
    return moment


def start_of(text: str) -> str | int | datetime:
    """earliest, latest, an index, or a time with its zone. Any other text ends the program."""
    if text in ("earliest", "latest"):
        return text
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        exits.usage(
            f"the start is {text!r}: use earliest, latest, an index, or a time with its zone, "
            "such as 2030-01-31T12:00:00Z"
        )
    return moment
