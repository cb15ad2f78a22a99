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

from penstock.core.callback import CallbackTarget, News
from penstock.core.config import QueueConfig, SubscriptionConfig
from penstock.core.message import DeadLetter, Delivery, Message, ViewedMessage
from penstock.core.publishing import NewBatch, PublishResult
from penstock.core.settling import Outcome, Target
from penstock.core.stats import KnownStats, QueueStats
from penstock.storage.block import Chunk
from penstock.storage.shared import Shared

__all__ = [
    "Ack",
    "AckUpTo",
    "AlterQueue",
    "AlterSubscription",
    "Change",
    "CreateQueue",
    "CreateSubscription",
    "DeleteQueue",
    "DeleteSubscription",
    "Durability",
    "Extend",
    "GiveBack",
    "LetterWatch",
    "Nack",
    "RotateSecret",
    "Seek",
    "Settlement",
    "Store",
]

Durability = Literal["memory", "fsync", "replicated"]


class _Value(msgspec.Struct, frozen=True, kw_only=True):
    pass


class CreateQueue(_Value, frozen=True, kw_only=True):
    """Create a queue, with its subscription `default`."""

    queue: str
    config: QueueConfig = msgspec.field(default_factory=QueueConfig)


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

    async def receive(
        self,
        queue: str,
        subscription: str,
        limit: int,
        lease_seconds: float | None = None,
        most_bytes: int | None = None,
    ) -> list[Delivery]:
        """Lease up to `limit` messages, by priority and then index; empty if there is nothing.

        `most_bytes` limits their total size, roughly, but never to less than one message. A message
        has at most one live lease on a subscription.
        """
        ...

    async def poll(
        self,
        queue: str,
        subscription: str,
        start: int,
        count: int,
        most_bytes: int | None = None,
    ) -> list[Delivery]:
        """Lease ``[max(cursor, start), min(floor + max_in_flight, start + count))``.

        The range ends early at about `most_bytes`. The cursor moves to its end.
        """
        ...

    async def ask_again(self, queue: str, subscription: str, index: int) -> Delivery:
        """Deliver one particular unsettled message once more. Raises `NotLeased`."""
        ...

    async def settle(
        self, queue: str, subscription: str, settlements: Sequence[Settlement]
    ) -> list[list[Outcome]]:
        """Ack, nack, extend and give back. Returns an outcome for each target.

        Once an ack has been answered, the message is never delivered on that subscription again.
        `AckUpTo` has one outcome for each message that it settled.
        """
        ...

    async def read(self, queue: str, start: int, limit: int) -> list[Message]:
        """Read messages by index, without touching anybody's progress. Skips what is gone."""
        ...

    async def scan(self, queue: str, start: int, stop: int, most_bytes: int) -> Chunk:
        """Like `read`, but in bulk: the first part of ``[start, stop)``.

        It has at least one message if there is any, and ends with the publish that reaches
        ``most_bytes``. The event loop is not blocked, however much that is.
        """
        ...

    async def view(
        self, queue: str, subscription: str, settled: bool | None, limit: int
    ) -> list[ViewedMessage]:
        """The oldest messages and their state for a subscription, without touching it.

        ``settled``: only those that are settled, only those that are not, or (None) both.
        """
        ...

    async def find(self, queue: str, ids: Sequence[str]) -> list[Message | None]:
        """Find messages by id; None for each that the queue does not hold."""
        ...

    async def dead_letters(self, queue: str, start: int, limit: int) -> list[Message]:
        """The unsettled dead letters of a queue, from index `start` on."""
        ...

    async def redrive(
        self, queue: str, action: Literal["replay", "discard"], ids: Sequence[str] | None
    ) -> int:
        """Return dead letters to where they failed, or remove them: all, or those with these ids.

        Atomic: a letter is never in both places, nor in neither.
        """
        ...

    async def purge(self, queue: str) -> int:
        """Remove all messages, for every subscription. Dead letters and their messages stay.

        Returns how many were removed, counted in the same step.
        """
        ...

    async def release(self, queue: str, subscription: str, indexes: Sequence[int]) -> None:
        """Deliver messages that a dependency holds back. Raises `NotHeld`."""
        ...

    async def held(self, queue: str, subscription: str, limit: int) -> list[int]:
        """The lowest indexes that wait for other subscriptions."""
        ...

    async def blockers(
        self, queue: str, subscription: str, indexes: Sequence[int]
    ) -> list[list[str]]:
        """For each message, the subscriptions that it still waits for; empty if it is not held."""
        ...

    async def names(self) -> list[str]:
        """The names of all queues, sorted, without dead-letter queues.

        One that is being created or deleted may be among them.
        """
        ...

    async def stats(self, after: str = "", limit: int | None = None) -> list[QueueStats]:
        """The stats of all queues by name, or of up to `limit` that come after a name.

        Raises if one of them is unavailable. The others cost little more than their names.
        """
        ...

    async def queue_stats(self, queue: str, only: Sequence[str] | None = None) -> QueueStats:
        """The entry of one queue in `stats`, with all its subscriptions or `only` these.

        Those that are left out cost nothing. Raises `QueueNotFound` or `SubscriptionNotFound`.
        """
        ...

    async def known_stats(self) -> KnownStats:
        """The stats of all queues that can be read now. Does not raise for the others."""
        ...

    async def wait(self, queue: str, subscription: str, timeout_seconds: float) -> bool:
        """Wait until something may be deliverable. False if the time was up first."""
        ...

    async def wait_news(
        self, queue: str, subscription: str, seen: int, timeout_seconds: float
    ) -> News:
        """Wait until more messages can be delivered to the subscription, new or returned.

        `seen` is from the news before; if the time is up first, the answer has the same.
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
