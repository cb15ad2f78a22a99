"""The limits of the model, as values."""

from __future__ import annotations

import re

from penstock.errors import InvalidName

__all__ = [
    "DEAD_LETTER_SUFFIX",
    "EVENTS_SUFFIX",
    "MAX_BATCH_BYTES",
    "MAX_BATCH_MESSAGES",
    "MAX_BODY_BYTES",
    "MAX_ENVELOPE_BYTES",
    "MAX_KEY_CHARACTERS",
    "MAX_PRIORITY",
    "MAX_REASON_CHARACTERS",
    "MAX_STRAGGLERS",
    "NAME_PATTERN",
    "NANOSECONDS",
    "check_name",
    "is_name",
]

NANOSECONDS = 1_000_000_000

MAX_BODY_BYTES = 1024 * 1024
MAX_ENVELOPE_BYTES = 64 * 1024
MAX_BATCH_MESSAGES = 10_000
# A publish is one record in the log, and a record is read and verified as a whole.
MAX_BATCH_BYTES = 16 * 1024 * 1024
MAX_PRIORITY = 10
MAX_REASON_CHARACTERS = 1024
MAX_KEY_CHARACTERS = 255
# How many old unsettled messages a queue keeps aside so that retention can move past them.
MAX_STRAGGLERS = 10_000

DEAD_LETTER_SUFFIX = "-dlq"
EVENTS_SUFFIX = "-events"

# For queues and subscriptions.
NAME_PATTERN = "[A-Za-z0-9_-]{1,50}"

_NAME = re.compile(rf"{NAME_PATTERN}\Z")


def is_name(name: str) -> bool:
    return _NAME.match(name) is not None


def check_name(name: str, what: str) -> str:
    """Returns the name. Raises `InvalidName` unless it is 1 to 50 letters, digits, '-' or '_'."""
    if not isinstance(name, str) or not is_name(name):
        raise InvalidName(
            f"{what} name {name!r} is not allowed: use 1 to 50 letters, digits, '-' or '_'"
        )
    return name
