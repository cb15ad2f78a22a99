"""The durable record in MongoDB of what a hot store keeps: see docs/mongo.md."""

from __future__ import annotations

from penstock.errors import MissingExtra

try:
    import pymongo as _driver  # noqa: F401
except ImportError as exc:
    raise MissingExtra(
        "an archive in MongoDB needs the package pymongo: pip install 'penstock[mongo]'"
    ) from exc
