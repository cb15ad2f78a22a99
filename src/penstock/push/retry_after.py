"""``Retry-After``: a number of seconds, or a date."""

from __future__ import annotations

from datetime import UTC
from email.utils import parsedate_to_datetime

__all__ = ["retry_after_seconds"]

MAX_SECONDS = 3600.0


def retry_after_seconds(text: str | None, now_seconds: float) -> float | None:
    """From 0 seconds to an hour; None if it is absent or makes no sense."""
    if text is None:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), MAX_SECONDS)
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return min(max(moment.timestamp() - now_seconds, 0.0), MAX_SECONDS)
