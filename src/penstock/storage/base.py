"""The storage contract: what every backend promises, and what the broker may rely on.

Batch first: a single operation is a batch of one. Every method that changes something returns once
the change has the backend's durability, or raises; if it raises, nothing has changed that a later
call could see, unless it says otherwise.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol

import msgspec

from penstock.core.callback import CallbackTarget
from penstock.core.config import QueueConfig, SubscriptionConfig
from penstock.core.graph import HeldMessage
from penstock.core.message import DeadLetter, Delivery, Message, ViewedMessage
from penstock.core.publishing import NewBatch, PublishResult
from penstock.core.settling import Outcome, Target
from penstock.core.stats import KnownStats, QueueStats
from penstock.storage.block import Chunk
from penstock.storage.shared import Shared

__all__ = [
    "Ack",
    "AckUpTo",
    "Action",
    "Again",
    "AlterQueue",
    "AlterSubscription",
    "Change",
    "CreateQueue",
    "CreateSubscription",
    "DeleteQueue",
    "DeleteSubscription",
    "Discard",
    "Durability",
    "Extend",
    "GiveBack",
    "LetterWatch",
    "Nack",
    "Next",
    "Poll",
    "Purge",
    "Release",
    "Replay",
    "RotateSecret",
    "Seek",
    "Settlement",
    "Span",
    "Store",
    "View",
    "Wanted",
]

Durability = Literal["memory", "fsync", "replicated"]
View = Literal["all", "settled", "unsettled"]


class _Value(msgspec.Struct, frozen=True, kw_only=True):
    pass


class CreateQueue(_Value, frozen=True, kw_only=True):
    """Create a queue, with its subscription `default`, which has the settings ``default``."""

    queue: str
    config: QueueConfig = msgspec.field(default_factory=QueueConfig)
    default: SubscriptionConfig = msgspec.field(default_factory=SubscriptionConfig)


class AlterQueue(_Value, frozen=True, kw_only=True):
    queue: str
    changes: dict[str, Any]


class DeleteQueue(_Value, frozen=True, kw_only=True):
    """Delete a queue with its messages, subscriptions and dead letters."""

    queue: str


class CreateSubscription(_Value, frozen=True, kw_only=True):
    """`secret` is for the callback, if there is one."""

    queue: str
    subscription: str
    config: SubscriptionConfig = msgspec.field(default_factory=SubscriptionConfig)
    start: str | int | datetime = "latest"
    secret: str | None = None


class AlterSubscription(_Value, frozen=True, kw_only=True):
    """`secret` is for the callback, if there now is one and it has no secret yet."""

    queue: str
    subscription: str
    changes: dict[str, Any]
    secret: str | None = None


class RotateSecret(_Value, frozen=True, kw_only=True):
    """Sign callbacks with `secret` from now on, and also with the one before it."""

    queue: str
    subscription: str
    secret: str


class DeleteSubscription(_Value, frozen=True, kw_only=True):
    queue: str
    subscription: str


class Seek(_Value, frozen=True, kw_only=True):
    """Move a subscription back or forward. `start` is as for a new subscription."""

    queue: str
    subscription: str
    start: str | int | datetime


Change = (
    CreateQueue
    | AlterQueue
    | DeleteQueue
    | CreateSubscription
    | AlterSubscription
    | DeleteSubscription
    | RotateSecret
    | Seek
)


class Next(_Value, frozen=True, kw_only=True):
    """Up to `limit` messages, by priority and then index; none if there is nothing.

    `most_bytes` limits their total size, roughly, but never to less than one message.
    """

    limit: int
    lease_seconds: float | None = None
    most_bytes: int | None = None


class Poll(_Value, frozen=True, kw_only=True):
    """``[max(cursor, start), min(floor + max_in_flight, start + count))``.

    The range ends early at about `most_bytes`. The cursor moves to its end.
    """

    start: int
    count: int
    most_bytes: int | None = None


class Again(_Value, frozen=True, kw_only=True):
    """One particular unsettled message once more. Raises `MessageNotFound` or `NotLeased`."""

    index: int


Wanted = Next | Poll | Again


class Ack(_Value, frozen=True, kw_only=True):
    """Targets are deliveries, receipts or message ids."""

    targets: Sequence[Target]


class Nack(_Value, frozen=True, kw_only=True):
    """Without `delay_seconds`, the subscription's backoff applies."""

    targets: Sequence[Target]
    delay_seconds: float | None = None
    reason: str = ""


class Extend(_Value, frozen=True, kw_only=True):
    """Let the leases end `seconds` from now or, with `further`, that much later."""

    targets: Sequence[Target]
    seconds: float
    further: bool = False


class GiveBack(_Value, frozen=True, kw_only=True):
    """Return deliveries that nobody got or has started on: ready again, and not counted."""

    targets: Sequence[Target]


class AckUpTo(_Value, frozen=True, kw_only=True):
    """Ack everything below `index`."""

    index: int


Settlement = Ack | Nack | Extend | GiveBack | AckUpTo


class Purge(_Value, frozen=True, kw_only=True):
    """Remove all messages, for every subscription. Dead letters and their messages stay."""


class Replay(_Value, frozen=True, kw_only=True):
    """Return dead letters to where they failed: all, or those with these ids."""

    ids: Sequence[str] | None = None


class Discard(_Value, frozen=True, kw_only=True):
    """Remove dead letters: all, or those with these ids."""

    ids: Sequence[str] | None = None


class Release(_Value, frozen=True, kw_only=True):
    """Deliver messages that a dependency holds back. Raises `MessageNotFound` or `NotHeld`."""

    subscription: str
    indexes: Sequence[int]


Action = Purge | Replay | Discard | Release


class Span(_Value, frozen=True, kw_only=True):
    """The messages from index `start` on, `limit` indexes at most."""

    start: int
    limit: int


class LetterWatch(Protocol):
    """Is told of dead letters. Neither method may raise or block."""

    def buried(self, id: str, letter: DeadLetter) -> None:
        """A message became a dead letter."""
        ...

    def more(self, queue: str, count: int) -> None:
        """So many more of a queue did, too many at once to report each."""
        ...


class Store(Protocol):
    """One backend. Errors are those of `penstock.errors`; a driver's errors never get through."""

    @property
    def durability(self) -> Durability:
        """What a completed write survives: nothing, power loss, or the loss of a machine."""
        ...

    @property
    def problem(self) -> str | None:
        """Why writes are refused, if they are."""
        ...

    @property
    def services(self) -> Mapping[str, str | None]:
        """The other servers that it needs, by kind, each with why it is unavailable, if it is."""
        ...

    @property
    def shared(self) -> Shared | None:
        """What its servers share besides messages; None if there can be only one server."""
        ...

    async def define(self, change: Change) -> None:
        """Create, alter, delete or seek. All or nothing."""
        ...

    def publish(self, queue: str, batch: NewBatch) -> Awaitable[PublishResult]:
        """Store the batch, all or nothing. Raises `QueueFull`, `DiskFull` or `ReservedQueue`.

        Not declared as a coroutine: on the busiest path of all, a backend may return a future.

        If its idempotency key (`NewBatch.keys`) was seen within the queue's dedup window, nothing
        is stored, and the answer is that of the first request, with `duplicate` set.
        """
        ...

    async def receive(self, queue: str, subscription: str, wanted: Wanted) -> list[Delivery]:
        """Lease messages. One has at most one live lease on a subscription."""
        ...

    async def settle(
        self, queue: str, subscription: str, settlements: Sequence[Settlement]
    ) -> list[Sequence[Outcome]]:
        """Ack, nack, extend and give back. Returns an outcome for each target.

        Once an ack has been answered, the message is never delivered on that subscription again.
        `AckUpTo` has one outcome for each message that it settled.
        """
        ...

    async def operate(self, queue: str, action: Action) -> int:
        """Purge, replay, discard or release. Returns how many messages that concerned.

        All or nothing. A dead letter is never in two places, nor in none.
        """
        ...

    async def read(self, queue: str, wanted: Span | Sequence[str]) -> list[Message]:
        """Read messages by index or by id, without touching anybody's progress.

        Those that the queue does not hold are left out. The order is that of what is wanted.
        """
        ...

    async def scan(self, queue: str, start: int, stop: int, most_bytes: int) -> Chunk:
        """Like `read`, but in bulk: the first part of ``[start, stop)``.

        It has at least one message if there is any, and ends with the publish that reaches
        ``most_bytes``. The event loop is not blocked, however much that is.
        """
        ...

    async def view(
        self, queue: str, subscription: str, which: View, limit: int, start: int = 0
    ) -> list[ViewedMessage]:
        """The oldest messages from index `start` on and their state for a subscription.

        Nothing is touched. A queue's dead letters are the unsettled messages of the subscription
        `default` of its dead-letter queue.
        """
        ...

    async def held(self, queue: str, subscription: str, limit: int) -> list[HeldMessage]:
        """The lowest indexes that wait for other subscriptions, and for which."""
        ...

    async def names(self) -> list[str]:
        """The names of all queues, sorted, without dead-letter queues.

        One that is being created or deleted may be among them.
        """
        ...

    async def stats(self, after: str = "", limit: int | None = None) -> KnownStats:
        """The stats of all queues by name, or of up to `limit` that come after a name.

        It says which of them cannot be read now. The others cost little more than their names.
        """
        ...

    async def queue_stats(self, queue: str, only: Sequence[str] | None = None) -> QueueStats:
        """The entry of one queue in `stats`, with all its subscriptions or `only` these.

        Those that are left out cost nothing. Raises `QueueNotFound` or `SubscriptionNotFound`.
        """
        ...

    async def wait(
        self, queue: str, subscription: str, timeout_seconds: float, beyond: int | None = None
    ) -> int | None:
        """Wait until something may be deliverable. None if the time was up first.

        Returns a number that changes with all that arrives, new or returned; 0 is nothing. With
        such a number as `beyond`, wait until it is another one.
        """
        ...

    async def callbacks(self, queue: str | None = None) -> list[CallbackTarget]:
        """The subscriptions that have a callback, with their secrets: all, or those of a queue.

        Empty if there is no such queue: nobody is to be called for it.
        """
        ...

    def watch_letters(self, watch: LetterWatch) -> None:
        """Report every dead letter once, at one of the servers that watch, within seconds."""
        ...

    async def close(self) -> None:
        """Finish what was accepted, then release everything. Idempotent."""
        ...
