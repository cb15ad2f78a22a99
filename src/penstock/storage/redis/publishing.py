"""Publishing a batch: the arguments of the script, and its answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.core.message import message_id
from penstock.core.publishing import NewBatch, PublishResult, never_due
from penstock.errors import InvalidArgument, QueueFull, ReservedQueue
from penstock.storage.base import Durability
from penstock.storage.redis import matching
from penstock.storage.redis.connection import Argument
from penstock.storage.redis.definitions import QueueDefinition
from penstock.storage.redis.messages import MICROSECONDS
from penstock.storage.redis.steps import Steps

__all__ = ["Publishing"]


class Publishing:
    """Filters are applied here, before the step, because scripts cannot run CEL."""

    def __init__(self, steps: Steps, durability: Durability) -> None:
        self._steps = steps
        self.durability = durability

    async def publish(self, queue: str, batch: NewBatch) -> PublishResult:
        result = await self.append(queue, batch)
        assert result is not None
        return result

    async def append(self, queue: str, batch: NewBatch, events: str = "") -> PublishResult | None:
        """``events`` identifies the events in the batch, if this is the events queue of another.

        Returns None if another server has published these.
        """
        extras, payload = matching.pack_extras(batch), matching.payload(batch, events)
        guess = _Guess()

        def arguments(definition: QueueDefinition) -> Sequence[Argument]:
            if definition.source is not None or (definition.observed and not events):
                raise ReservedQueue(f"{queue!r} is written by the broker alone: publish elsewhere")
            if not matching.looks_at_ids(definition.feeds):
                guess.is_needed = False
                found = matching.pack_matches(definition.feeds, batch, guess.no_id)
                return [extras, found, "", *payload]
            guess.is_needed = True
            found = matching.pack_matches(
                definition.feeds, batch, lambda at: guess.id_of(at, definition.salt)
            )
            return [extras, found, guess.text, *payload]

        while True:
            time = guess.time if guess.is_needed else None
            definition, answer = await self._steps.take("publish", queue, arguments, time=time)
            if answer[0] == b"full":
                raise _full(queue, answer)
            if answer[0] == b"late":
                raise never_due(queue, answer[1].decode())
            if answer[0] in (b"ok", b"again"):
                return self._published(definition, len(batch.bodies), answer)
            if answer[0] == b"told":
                return None
            if answer[0] == b"reused":
                raise InvalidArgument(
                    f"the idempotency key {batch.keys[0].key[:80]!r} was used for a publish of "
                    f"{answer[1]} messages, and this one has {len(batch.bodies)}: give each "
                    "publish its own"
                )
            guess.learn(answer)

    def _published(
        self, definition: QueueDefinition, count: int, answer: list[Any]
    ) -> PublishResult:
        kind, created, first, found = answer
        indexes: Sequence[int] = range(first, first + count)
        duplicates: dict[int, str] = {}
        if found:
            originals = {}
            for at in range(0, len(found), 3):
                position, index, when = found[at] - 1, found[at + 1], found[at + 2]
                originals[position] = index
                duplicates[position] = message_id(when * MICROSECONDS, index, definition.salt)
            new = iter(indexes)
            indexes = [originals[at] if at in originals else next(new) for at in range(count)]
        created_ns = created * MICROSECONDS
        if kind == b"again":
            for at, index in enumerate(indexes):
                duplicates.setdefault(at, message_id(created_ns, index, definition.salt))
        return PublishResult(indexes, created_ns, definition.salt, duplicates, self.durability)


class _Guess:
    """The index and time that a batch will have, guessed for filters that look at ids."""

    def __init__(self) -> None:
        self.is_needed = False
        self.time: Argument = 0
        self._first = 0
        self._duplicates: set[int] = set()

    @property
    def text(self) -> str:
        return f"{self._first}:{len(self._duplicates)}"

    def learn(self, answer: list[Any]) -> None:
        """Take over the values at which the guess was refused."""
        _, self._first, self.time, duplicates = answer
        self._duplicates = {duplicates[at] - 1 for at in range(0, len(duplicates), 3)}

    def id_of(self, at: int, salt: int) -> str:
        before = sum(1 for other in self._duplicates if other < at)
        return message_id(int(self.time) * MICROSECONDS, self._first + at - before, salt)

    @staticmethod
    def no_id(at: int) -> str:
        raise AssertionError("a filter that looks at no id asks for one")


def _full(queue: str, answer: list[Any]) -> QueueFull:
    _, kind, unsettled, most, more = answer
    return QueueFull(
        f"queue {queue!r} is full: {unsettled} of {most} {kind.decode()} are unsettled, "
        f"{more} more came; nothing was stored, try again when consumers have caught up"
    )
