"""The storage contract: what every backend promises, and what the broker may rely on.

Batch first: a single operation is a batch of one. Every method that changes something returns
once the change has reached the backend's durability, or raises; when it raises, nothing has
changed that a later call could see, except where it says otherwise.
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
    "PurgeQueue",
    "RotateSecret",
    "Seek",
    "Settlement",
    "Store",
]

Durability = Literal["memory", "fsync", "replicated"]


class _Value(msgspec.Struct, frozen=True, kw_only=True):
    pass


class CreateQueue(_Value, frozen=True, kw_only=True):
    """With its subscription `default`."""

    queue: str
    config: QueueConfig = msgspec.field(default_factory=QueueConfig)


class AlterQueue(_Value, frozen=True, kw_only=True):
    queue: str
    changes: dict[str, Any]


class DeleteQueue(_Value, frozen=True, kw_only=True):
    """With its messages, subscriptions and dead letters."""

    queue: str


class PurgeQueue(_Value, frozen=True, kw_only=True):
    """All messages, for every subscription. Dead letters stay."""

    queue: str


class CreateSubscription(_Value, frozen=True, kw_only=True):
    """`secret` is the first one of its callback, if it has one."""

    queue: str
    subscription: str
    config: SubscriptionConfig = msgspec.field(default_factory=SubscriptionConfig)
    start: str | int | datetime = "latest"
    secret: str | None = None


class AlterSubscription(_Value, frozen=True, kw_only=True):
    """`secret` is for its callback, if it now has one and no secret yet."""

    queue: str
    subscription: str
    changes: dict[str, Any]
    secret: str | None = None


class RotateSecret(_Value, frozen=True, kw_only=True):
    """Callbacks are signed with `secret` from now on, and with the one before it as well."""

    queue: str
    subscription: str
    secret: str


class DeleteSubscription(_Value, frozen=True, kw_only=True):
    queue: str
    subscription: str


class Seek(_Value, frozen=True, kw_only=True):
    """Back or forward, to where `start` of a new subscription would be."""

    queue: str
    subscription: str
    start: str | int | datetime


Change = (
    CreateQueue
    | AlterQueue
    | DeleteQueue
    | PurgeQueue
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
    """Without `delay_seconds` the subscription's backoff decides."""

    targets: Sequence[Target]
    delay_seconds: float | None = None
    reason: str = ""


class Extend(_Value, frozen=True, kw_only=True):
    """The leases end `seconds` from now; with `further`, that much later than they would."""

    targets: Sequence[Target]
    seconds: float
    further: bool = False


class GiveBack(_Value, frozen=True, kw_only=True):
    """Nobody got these, or began with them: they are ready again, and do not count as delivered."""

    targets: Sequence[Target]


class AckUpTo(_Value, frozen=True, kw_only=True):
    """Everything below `index`."""

    index: int


Settlement = Ack | Nack | Extend | GiveBack | AckUpTo


class LetterWatch(Protocol):
    """Somebody who wants to know of dead letters. Neither call may raise or wait."""

    def buried(self, id: str, letter: DeadLetter) -> None:
        """A message became a dead letter."""
        ...

    def more(self, queue: str, count: int) -> None:
        """So many more of a queue did, which nobody looked at: there are too many at once."""
        ...


class Store(Protocol):
    """One backend. Errors are those of `penstock.errors`; drivers' errors never come through."""

    @property
    def durability(self) -> Durability:
        """What an answered write survives: nothing, power loss, or the loss of a machine."""
        ...

    @property
    def problem(self) -> str | None:
        """Why writes are refused, if they are."""
        ...

    @property
    def services(self) -> Mapping[str, str | None]:
        """The other servers that it needs, by what they are, each with why it is away if it is."""
        ...

    @property
    def shared(self) -> Shared | None:
        """What its servers share besides messages; None where it has only one server."""
        ...

    async def define(self, change: Change) -> None:
        """Create, alter or delete a queue or subscription, purge, seek. All or nothing."""
        ...

    def publish(self, queue: str, batch: NewBatch) -> Awaitable[PublishResult]:
        """The whole batch, or nothing: `QueueFull`, `DiskFull`, `ReservedQueue`.

        Not a coroutine of its own: on the busiest path of all a backend may answer with a future.

        If its idempotency key (`NewBatch.keys`) came within the queue's dedup window, nothing is
        stored, and the answer is that of the first, with `duplicate` set.
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

        With `most_bytes` they have about that many bytes at most, but it is one message at least.
        A message has at most one live lease on a subscription.
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

        It ends early at about `most_bytes`. The cursor moves to the end of that range.
        """
        ...

    async def ask_again(self, queue: str, subscription: str, index: int) -> Delivery:
        """Deliver one particular unsettled message once more. Raises `NotLeased`."""
        ...

    async def settle(
        self, queue: str, subscription: str, settlements: Sequence[Settlement]
    ) -> list[list[Outcome]]:
        """Ack, nack and extend many deliveries; an outcome for each target.

        Once an ack has been answered, the message is never delivered on that subscription again.
        `AckUpTo` gives one outcome for each message that it settled.
        """
        ...

    async def read(self, queue: str, start: int, limit: int) -> list[Message]:
        """Messages by index, without touching anybody's progress. Skips what is gone."""
        ...

    async def scan(self, queue: str, start: int, stop: int, most_bytes: int) -> Chunk:
        """As `read`, but in bulk, for those who read very many: a part of ``[start, stop)``.

        It holds one message at least if there is one, and ends with the publish that reaches
        ``most_bytes``. The event loop is not held up, however much that is.
        """
        ...

    async def view(
        self, queue: str, subscription: str, settled: bool | None, limit: int
    ) -> list[ViewedMessage]:
        """The oldest messages and how they stand with a subscription, without touching it.

        Only those that are settled there, only those that are not, or both.
        """
        ...

    async def find(self, queue: str, ids: Sequence[str]) -> list[Message | None]:
        """Messages by id; None for those that the queue does not hold."""
        ...

    async def dead_letters(self, queue: str, start: int, limit: int) -> list[Message]:
        """The dead letters of a queue that nobody has taken, from index `start` on."""
        ...

    async def redrive(
        self, queue: str, action: Literal["replay", "discard"], ids: Sequence[str] | None
    ) -> int:
        """Give dead letters back to where they failed, or remove them; all, or those of some ids.

        Atomic: a letter is never in both places or in neither.
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
        """For each message the subscriptions that it still waits for; none if it is not held."""
        ...

    async def stats(self, queue: str | None = None) -> list[QueueStats]:
        """Of one queue, or of all of them by name: none is left out. See `known_stats`."""
        ...

    async def known_stats(self) -> KnownStats:
        """Of all queues, as far as they can be looked at. Raises nothing for the others."""
        ...

    async def wait(self, queue: str, subscription: str, timeout_seconds: float) -> bool:
        """Sleep until something may be deliverable. False when the time was up first."""
        ...

    async def wait_news(
        self, queue: str, subscription: str, seen: int, timeout_seconds: float
    ) -> News:
        """Sleep until messages came within reach of the subscription, new ones or again.

        `seen` is that of the news before, which is also what comes when the time was up first.
        """
        ...

    async def callbacks(self) -> list[CallbackTarget]:
        """The subscriptions that have a callback, with their secrets."""
        ...

    def watch_letters(self, watch: LetterWatch) -> None:
        """Tell of every dead letter once, at one of the servers that watch, within seconds."""
        ...

    async def close(self) -> None:
        """Finish what was accepted, then let go of everything. Idempotent."""
        ...
