"""LightQ's variables that do not map to one of our settings, and those without effect here.

Its Redis is named by host, port and password, its MongoDB by an address and a database; here each
is one URL. Simple Queue Service has the same under Spring's own names.
"""

from __future__ import annotations

import os
from urllib.parse import quote, urlencode

from penstock.core.limits import DEAD_LETTER_SUFFIX

__all__ = ["OTHER_VARIABLES", "archive_url", "store_url", "without_effect"]

_HOST = ("SPRING_DATA_REDIS_HOST", "SPRING_REDIS_HOST")
_PORT = ("SPRING_DATA_REDIS_PORT", "SPRING_REDIS_PORT")
_PASSWORD = ("SPRING_DATA_REDIS_PASSWORD", "SPRING_REDIS_PASSWORD")
_MONGO = ("MONGO_URI", "SPRING_DATA_MONGODB_URI")
_DATABASE = ("MONGO_DB", "SPRING_DATA_MONGODB_DATABASE")

_SUFFIX = "LIGHTQ_DLQ_SUFFIX"

OTHER_VARIABLES = frozenset({*_HOST, *_PORT, *_PASSWORD, *_MONGO, *_DATABASE, _SUFFIX})
"""The variables that are read here."""


def _first(names: tuple[str, ...]) -> str:
    return next((value for name in names if (value := os.environ.get(name))), "")


def store_url() -> str | None:
    """``redis://…`` of LightQ's Redis, if any part of it is given; the rest are its defaults."""
    host, port, password = _first(_HOST), _first(_PORT), _first(_PASSWORD)
    if not (host or port or password):
        return None
    secret = f":{quote(password, safe='')}@" if password else ""
    shown = f"[{host}]" if ":" in host else host or "localhost"
    return f"redis://{secret}{shown}:{port or 6379}/0"


def archive_url() -> str | None:
    """``mongodb://…`` with LightQ's database. The login database stays what it was without one."""
    address, database = _first(_MONGO), _first(_DATABASE)
    if not address or not database:
        return address or None
    scheme, _, rest = address.partition("://")
    hosts, _, tail = rest.partition("/")
    # Options may follow the hosts without a slash.
    hosts, _, loose = hosts.partition("?")
    before, _, options = tail.partition("?")
    parts = [part for part in (options or loose).split("&") if part]
    if "@" in hosts and not any(part.lower().startswith("authsource=") for part in parts):
        parts.append(urlencode({"authSource": before or "admin"}))
    return f"{scheme}://{hosts}/{quote(database, safe='')}{'?' if parts else ''}{'&'.join(parts)}"


def without_effect(*, has_archive: bool) -> dict[str, str]:
    """Variables that are set and change nothing, each with the reason."""
    found = {}
    suffix = os.environ.get(_SUFFIX) or DEAD_LETTER_SUFFIX
    if suffix != DEAD_LETTER_SUFFIX:
        found[_SUFFIX] = f"names of dead letters always end in {DEAD_LETTER_SUFFIX}"
    if os.environ.get("MONGO_URI") and not has_archive:
        found["MONGO_URI"] = "messages are not in Redis, and only those have a record in MongoDB"
    return found
