"""From indexes to messages: where the machine says they are, as the journal has them."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from penstock.core.events import DeadLettered, Event, Published
from penstock.core.machine import Place
from penstock.core.message import PLAIN, DeadLetter, Message
from penstock.core.queue import Queue
from penstock.core.runs import Run

__all__ = ["MessageReader", "MessageSource"]


class MessageSource(Protocol):
    """Gives back the events that carry messages."""

    def load_nowait(self, place: Place) -> Event | None:
        """An event at hand; None when it takes I/O to get it."""
        ...

    async def load(self, place: Place) -> Event: ...


class _Part(NamedTuple):
    """The messages ``start <= index < stop``, which one event holds."""

    place: Place
    start: int
    stop: int
    created_ns: int


class MessageReader:
    """Reads by index. What a queue no longer holds is left out."""

    def __init__(self, source: MessageSource) -> None:
        self._source = source

    def read_nowait(self, queue: Queue, runs: list[Run]) -> list[Message] | None:
        """None when any part of it takes I/O."""
        messages: list[Message] = []
        for run in runs:
            for part in _parts(queue, run):
                event = self._source.load_nowait(part.place)
                if event is None:
                    return None
                if isinstance(event, Published):
                    _add_messages(messages, queue, event, part)
                elif isinstance(event, DeadLettered) and queue.source is not None:
                    origins = self.read_nowait(queue.source, [(event.index, event.index + 1)])
                    if origins is None:
                        return None
                    messages += [_letter(queue, event, origin) for origin in origins]
        return messages

    async def read(self, queue: Queue, runs: list[Run]) -> list[Message]:
        messages: list[Message] = []
        for run in runs:
            for part in _parts(queue, run):
                event = self._source.load_nowait(part.place)
                if event is None:
                    event = await self._source.load(part.place)
                if isinstance(event, Published):
                    _add_messages(messages, queue, event, part)
                elif isinstance(event, DeadLettered) and queue.source is not None:
                    origins = await self.read(queue.source, [(event.index, event.index + 1)])
                    messages += [_letter(queue, event, origin) for origin in origins]
        return messages


def _parts(queue: Queue, run: Run) -> list[_Part]:
    start, stop = run
    if start < queue.first:
        kept = [index for index in range(start, min(stop, queue.first)) if queue.holds(index)]
        aside = [
            _Part(Place(batch.locator, batch.length), index, index + 1, batch.created_ns)
            for index, batch in ((index, queue.stragglers[index]) for index in kept)
        ]
        return aside + _parts(queue, (queue.first, stop)) if stop > queue.first else aside
    if start >= stop:
        return []
    batches = queue.timeline.batches(start, stop)
    ends = [batch.first for batch in batches[1:]]
    ends.append(stop)
    return [
        _Part(Place(batch.locator, batch.length), max(start, batch.first), end, batch.created_ns)
        for batch, end in zip(batches, ends, strict=True)
    ]


def _add_messages(messages: list[Message], queue: Queue, event: Published, part: _Part) -> None:
    first, name, salt, created_ns = event.first, queue.name, queue.salt, part.created_ns
    bodies, envelopes = event.bodies, event.envelopes
    messages.extend(
        Message(
            queue=name,
            index=index,
            created_at_ns=created_ns,
            salt=salt,
            body=bodies[index - first],
            envelope=PLAIN if envelopes is None else envelopes[index - first],
        )
        for index in range(part.start, part.stop)
    )


def _letter(letters: Queue, event: DeadLettered, origin: Message) -> Message:
    """A dead letter is the message that failed, with the reason."""
    return Message(
        queue=letters.name,
        index=event.letter_index,
        created_at_ns=origin.created_at_ns,
        salt=origin.salt,
        body=origin.body,
        envelope=origin.envelope,
        dead_letter=DeadLetter(
            queue=origin.queue,
            subscription=event.subscription,
            index=event.index,
            deliveries=event.deliveries,
            reason=event.reason,
            failed_at_ns=event.at_ns,
        ),
    )
