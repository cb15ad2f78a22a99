"""Types of fields that the JSON forms of the native API share, and their limits.

Names are in snake_case, times in ISO 8601 and UTC. Unknown fields of a request are refused.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta

from penstock.core.limits import MAX_BATCH_MESSAGES, MAX_BODY_BYTES

__all__ = [
    "MAX_ANSWER_BYTES",
    "MAX_NUMBER",
    "MAX_PAGE",
    "Count",
    "Index",
    "Start",
    "Targets",
    "Time",
]

MAX_PAGE = 1000
# An answer ends early when its bodies reach this many bytes; the rest is for the next call.
MAX_ANSWER_BYTES = 16 * MAX_BODY_BYTES

# The largest whole number that every JSON parser keeps exactly.
MAX_NUMBER = 2**53 - 1

Index = Annotated[int, Meta(ge=0, le=MAX_NUMBER)]
Time = Annotated[datetime, Meta(tz=True)]
Targets = Annotated[list[str], Meta(max_length=MAX_BATCH_MESSAGES)]
Start = int | str
Count = Annotated[int, Meta(ge=1, le=MAX_PAGE)]
