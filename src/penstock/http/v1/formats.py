"""The formats in which many messages travel: their content types, and what they need installed."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from penstock.errors import MissingExtra
from penstock.http.exchange import IncomingRequest

__all__ = ["ARROW", "BATCH", "MSGPACK_BATCH", "NDJSON", "load_arrow", "wanted_stream"]

ARROW = "application/vnd.apache.arrow.stream"
BATCH = "application/vnd.penstock.batch+json"
NDJSON = "application/x-ndjson"
MSGPACK_BATCH = "application/vnd.penstock.batch+msgpack"


def wanted_stream(request: IncomingRequest) -> str | None:
    """The kind of stream that the client accepts, if it names one: `ARROW` or `NDJSON`."""
    accepted = request.first.get(b"accept") or b""
    for kind in (ARROW, NDJSON):
        if kind.encode() in accepted.lower():
            return kind
    return None


def load_arrow(part: str) -> ModuleType:
    """The module that writes Arrow (`columns`), or reads it (`rows`). Raises `MissingExtra`.

    The first time it takes a while, so call it in a thread.
    """
    try:
        return import_module(f"penstock.http.v1.arrow_{part}")
    except ImportError as exc:
        raise MissingExtra(
            "Arrow needs pyarrow, which this server does not have: install penstock[arrow], "
            "or use JSON or NDJSON"
        ) from exc
