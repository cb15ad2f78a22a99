"""The Redis backend: any number of servers over one Redis or Valkey."""

from __future__ import annotations

from penstock.errors import MissingExtra

try:
    import redis as _driver  # noqa: F401
except ImportError as exc:
    raise MissingExtra(
        "messages in Redis need the package redis: pip install 'penstock[redis]'"
    ) from exc
