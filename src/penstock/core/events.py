"""Events: the machine's output, and the only thing that changes its state.

The log stores them, recovery replays them, and surfaces show them as lifecycle events. Runs of
indexes are written flat: ``[start, stop, start, stop, ...]``. Times are nanoseconds since 1970.

Tags and the order of fields are part of the log format: never change or reuse a tag, and add new
fields only at the end of an event, with a default.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.core.config import QueueConfig, SubscriptionConfig
from penstock.core.message import Envelope
from penstock.core.request_keys import PastRequest
from penstock.core.runs import Run

__all__ = [
    "Acked",
    "DeadLettered",
    "Delivered",
    "Discarded",
    "Event",
    "Expired",
    "Extended",
    "LeaseExpired",
    "Lost",
    "Nacked",
    "Polled",
    "Published",
    "QueueAltered",
    "QueueCreated",
    "QueueDeleted",
    "QueuePurged",
    "Released",
    "Replayed",
    "Returned",
    "Sought",
    "SubscriptionAltered",
    "SubscriptionCreated",
    "SubscriptionDeleted",
    "Trimmed",
    "flat",
    "pairs",
]


def flat(runs: list[Run]) -> list[int]:
    return [bound for run in runs for bound in run]


def pairs(bounds: list[int]) -> list[Run]:
    return list(zip(bounds[::2], bounds[1::2], strict=True))


class _Event(msgspec.Struct, frozen=True, array_like=True, gc=False):
    at_ns: int  # first in every record, so that an event can grow at its end


class QueueCreated(_Event, frozen=True, kw_only=True, tag=10):
    """A queue and its subscription `default`, whose id is the next one. One event, so atomic."""

    queue_id: int
    name: str
    config: QueueConfig
    salt: int
    dead_letters_of: int | None = None
    default: SubscriptionConfig | None = None
    events_of: int | None = None


class QueueAltered(_Event, frozen=True, kw_only=True, tag=11):
    queue_id: int
    config: QueueConfig


class QueueDeleted(_Event, frozen=True, kw_only=True, tag=12):
    queue_id: int


class QueuePurged(_Event, frozen=True, kw_only=True, tag=13):
    queue_id: int


class SubscriptionCreated(_Event, frozen=True, kw_only=True, tag=20):
    """`backfill` has the matches older than the feed; `since` is the index where it now begins."""

    subscription_id: int
    queue_id: int
    name: str
    config: SubscriptionConfig
    start: int
    since: int
    backfill: list[int] = []
    secrets: list[str] = []


class SubscriptionAltered(_Event, frozen=True, kw_only=True, tag=21):
    """Secrets stay as they are if `secrets` is None."""

    subscription_id: int
    config: SubscriptionConfig
    secrets: list[str] | None = None


class SubscriptionDeleted(_Event, frozen=True, kw_only=True, tag=22):
    subscription_id: int


class Sought(_Event, frozen=True, kw_only=True, tag=23):
    """The subscription was moved: everything below `index` is settled, nothing from there on is."""

    subscription_id: int
    index: int
    since: int
    backfill: list[int] = []


class Published(_Event, frozen=True, kw_only=True, tag=30):
    """`matched` maps the id of each feed whose filter needed CEL to its matches.

    `envelopes` is None if every message is plain. `keys` maps the idempotency keys of its requests
    to the answers they got. `bodies` and `heads` (the encoded envelopes) are for the storage; a
    replayed event has neither.
    """

    queue_id: int
    first: int
    count: int
    size: int
    envelopes: list[Envelope] | None = None
    matched: dict[int, list[int]] = {}
    filter_errors: dict[int, int] = {}
    keys: dict[str, PastRequest] = {}
    bodies: Sequence[bytes] = []
    heads: list[bytes] | None = None


class Delivered(_Event, frozen=True, kw_only=True, tag=40):
    subscription_id: int
    runs: list[int]
    epoch: int
    deadline_ns: int | None


class Polled(_Event, frozen=True, kw_only=True, tag=41):
    """A delivery by index range: the cursor moves to `stop`, and what it passed stays ready."""

    subscription_id: int
    runs: list[int]
    epoch: int
    deadline_ns: int | None
    stop: int


class Extended(_Event, frozen=True, kw_only=True, tag=42):
    subscription_id: int
    indexes: list[int]
    deadline_ns: int


class LeaseExpired(_Event, frozen=True, kw_only=True, tag=43):
    subscription_id: int
    runs: list[int]


class Returned(_Event, frozen=True, kw_only=True, tag=44):
    """Deliveries that nobody got, undone. Only their epoch stays used."""

    subscription_id: int
    runs: list[int]


class Acked(_Event, frozen=True, kw_only=True, tag=50):
    subscription_id: int
    runs: list[int]


class Nacked(_Event, frozen=True, kw_only=True, tag=51):
    """`due_ns` is when each index may be delivered again; 0 is at once."""

    subscription_id: int
    indexes: list[int]
    due_ns: list[int]
    reason: str = ""


class Expired(_Event, frozen=True, kw_only=True, tag=52):
    subscription_id: int
    runs: list[int]


class DeadLettered(_Event, frozen=True, kw_only=True, tag=60):
    """The message at `index` left the subscription for `letter_index` of the dead-letter queue."""

    subscription_id: int
    subscription: str
    dead_letter_queue_id: int
    index: int
    letter_index: int
    deliveries: int
    reason: str


class Replayed(_Event, frozen=True, kw_only=True, tag=61):
    """Dead letters went back to the subscriptions they had failed on."""

    dead_letter_queue_id: int
    letter_indexes: list[int]


class Discarded(_Event, frozen=True, kw_only=True, tag=62):
    dead_letter_queue_id: int
    letter_indexes: list[int]


class Released(_Event, frozen=True, kw_only=True, tag=63):
    subscription_id: int
    indexes: list[int]


class Trimmed(_Event, frozen=True, kw_only=True, tag=70):
    queue_id: int
    first: int


class Lost(_Event, frozen=True, kw_only=True, tag=71):
    """Messages that cannot be read any more. `repair` writes this in their place."""

    queue_id: int
    first: int
    count: int


class EpochsSkipped(_Event, frozen=True, kw_only=True, tag=72):
    """Written after a crash, so that no delivery reuses an epoch that the log has lost."""


Event = (
    QueueCreated
    | QueueAltered
    | QueueDeleted
    | QueuePurged
    | SubscriptionCreated
    | SubscriptionAltered
    | SubscriptionDeleted
    | Sought
    | Published
    | Delivered
    | Polled
    | Extended
    | LeaseExpired
    | Returned
    | Acked
    | Nacked
    | Expired
    | DeadLettered
    | Replayed
    | Discarded
    | Released
    | Trimmed
    | Lost
    | EpochsSkipped
)
