"""From indexes to messages: the machine knows where they are, and the journal has them."""

from __future__ import annotations

import logging
from itertools import repeat
from typing import NamedTuple, Protocol

from penstock.core.delivery import Handout
from penstock.core.events import DeadLettered, Event, Published
from penstock.core.machine import Place
from penstock.core.message import PLAIN, DeadLetter, Delivery, Message
from penstock.core.queue import Queue
from penstock.core.runs import Run, runs_of
from penstock.core.timeline import Places
from penstock.errors import CorruptLog
from penstock.storage.block import Block, Chunk, message_block

__all__ = ["MessageReader", "MessageSource"]

logger = logging.getLogger(__name__)

# How many dead letters to read at a time. Each takes another read, of the message that failed.
_LETTERS = 100


class MessageSource(Protocol):
    """Loads the events that carry messages."""

    @property
    def moves(self) -> int:
        """Grows when events move: places that were looked up before are void."""
        ...

    def load_nowait(self, place: Place) -> Event | None:
        """An event that is in memory; None if it takes I/O."""
        ...

    async def load(self, place: Place) -> Event | None:
        """None if it was never stored because the storage failed."""
        ...

    async def load_blocks(self, queue_id: int, places: Places) -> list[Block]:
        """Whole publishes of a queue, without those that were never stored or are empty.

        Does not block the event loop.
        """
        ...


class _Part(NamedTuple):
    """The messages ``start <= index < stop``, which are in one event."""

    place: Place
    start: int
    stop: int
    created_ns: int


class Piece(NamedTuple):
    """A part of a publish that was loaded. With `letter`, it is the message of a dead letter."""

    published: Published
    start: int
    stop: int
    created_ns: int
    letter: DeadLettered | None


class MessageReader:
    """Reads by index. What a queue no longer holds is left out."""

    def __init__(self, source: MessageSource) -> None:
        self._source = source

    async def read(self, queue: Queue, runs: list[Run]) -> list[Message]:
        return _messages(queue, await self._pieces(queue, runs))

    def read_nowait(self, queue: Queue, runs: list[Run]) -> list[Message] | None:
        """None if any part of it takes I/O."""
        pieces = self._pieces_nowait(queue, runs)
        return None if pieces is None else _messages(queue, pieces)

    async def scan(self, queue: Queue, start: int, stop: int, most_bytes: int) -> Chunk:
        """Some of the messages ``[start, stop)``, and where to go on."""
        stop = min(stop, queue.next)
        salt = _salt(queue)
        first = queue.first  # read before any await, during which more may be kept aside
        if start < first:
            # Older messages that are still needed are kept aside, one by one.
            aside = sorted(index for index in queue.stragglers if start <= index < stop)
            if aside:
                following = aside[_LETTERS] if len(aside) > _LETTERS else min(first, stop)
                older = await self.read(queue, runs_of(aside[:_LETTERS]))
                return Chunk([message_block(message) for message in older], following, salt)
            start = first
        if start >= stop:
            return Chunk([], max(start, stop), salt)
        if queue.source is not None:
            stop = min(stop, start + _LETTERS)
            letters = await self.read(queue, [(start, stop)])
            return Chunk([message_block(letter) for letter in letters], stop, salt)
        places = queue.timeline.places(start, stop, most_bytes)
        moves = self._source.moves
        try:
            whole = await self._source.load_blocks(queue.id, places)
        except CorruptLog:
            # Not damaged if it was moved or removed while it was being read.
            if moves == self._source.moves and queue.first <= start:
                raise
            return await self.scan(queue, start, stop, most_bytes)
        parts = [block.within(start, places.stop) for block in whole]
        return Chunk([part for part in parts if part is not None], places.stop, salt)

    async def deliver(self, handout: Handout) -> list[Delivery]:
        """The messages that can be read. Raises `CorruptLog` if none can.

        The others stay in flight, so they fail when their leases end and finally become dead
        letters, instead of failing every receive that includes them for ever.
        """
        queue = handout.subscription.queue
        try:
            pieces = await self._pieces(queue, handout.runs)
        except CorruptLog:
            pieces = await self._readable(queue, handout.runs)
        return _deliveries(queue, pieces, handout)

    async def _readable(self, queue: Queue, runs: list[Run]) -> list[Piece]:
        pieces: list[Piece] = []
        damage: CorruptLog | None = None
        for run in runs:
            for _, start, stop, _ in _parts(queue, run):
                try:
                    pieces += await self._pieces(queue, [(start, stop)])
                except CorruptLog as exc:
                    damage = exc
                    logger.error(
                        "messages %d to %d of queue %s cannot be read, others are delivered: %s",
                        start,
                        stop - 1,
                        queue.name,
                        exc,
                    )
        if damage is not None and not pieces:
            raise damage
        return pieces

    def deliver_nowait(self, handout: Handout) -> list[Delivery] | None:
        """None if any part of it takes I/O, or is damaged."""
        queue = handout.subscription.queue
        try:
            pieces = self._pieces_nowait(queue, handout.runs)
        except CorruptLog:
            return None
        return None if pieces is None else _deliveries(queue, pieces, handout)

    def _pieces_nowait(self, queue: Queue, runs: list[Run]) -> list[Piece] | None:
        pieces: list[Piece] = []
        for run in runs:
            for place, start, stop, created_ns in _parts(queue, run):
                event = self._source.load_nowait(place)
                if event is None:
                    return None
                if isinstance(event, Published):
                    pieces.append(Piece(event, start, stop, created_ns, None))
                elif isinstance(event, DeadLettered) and queue.source is not None:
                    origins = self._pieces_nowait(queue.source, [(event.index, event.index + 1)])
                    if origins is None:
                        return None
                    pieces += [origin._replace(letter=event) for origin in origins]
        return pieces

    async def _pieces(self, queue: Queue, runs: list[Run]) -> list[Piece]:
        pieces: list[Piece] = []
        for run in runs:
            parts, at = _parts(queue, run), 0
            while at < len(parts):
                place, start, stop, created_ns = parts[at]
                moves = self._source.moves
                try:
                    event = self._source.load_nowait(place) or await self._source.load(place)
                except CorruptLog:
                    # Not damaged if it was moved or removed while it was being read.
                    again = _parts(queue, (start, run[1]))
                    if again[:1] == parts[at : at + 1]:
                        raise
                    parts, at = again, 0
                    continue
                at += 1
                if isinstance(event, Published):
                    pieces.append(Piece(event, start, stop, created_ns, None))
                elif isinstance(event, DeadLettered) and queue.source is not None:
                    origins = await self._pieces(queue.source, [(event.index, event.index + 1)])
                    pieces += [origin._replace(letter=event) for origin in origins]
                if moves != self._source.moves:
                    parts, at = _parts(queue, (stop, run[1])), 0
        return pieces


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
    if stop - start == 1:
        batch = queue.timeline.batch(start)
        return [_Part(Place(batch.locator, batch.length), start, stop, batch.created_ns)]
    batches = queue.timeline.batches(start, stop)
    ends = [batch.first for batch in batches[1:]]
    ends.append(stop)
    return [
        _Part(Place(batch.locator, batch.length), max(start, batch.first), end, batch.created_ns)
        for batch, end in zip(batches, ends, strict=True)
    ]


def _messages(queue: Queue, pieces: list[Piece]) -> list[Message]:
    name, salt = queue.name, _salt(queue)
    messages: list[Message] = []
    for piece in pieces:
        event = piece.published
        first, bodies, envelopes = event.first, event.bodies, event.envelopes
        dead_letter = _dead_letter(queue, piece.letter)
        messages += [
            Message(
                queue=name,
                index=piece.letter.letter_index if piece.letter else index,
                created_at_ns=piece.created_ns,
                salt=salt,
                body=bodies[index - first],
                envelope=PLAIN if envelopes is None else envelopes[index - first],
                dead_letter=dead_letter,
            )
            for index in range(piece.start, piece.stop)
        ]
    return messages


def _deliveries(queue: Queue, pieces: list[Piece], handout: Handout) -> list[Delivery]:
    name, salt = queue.name, _salt(queue)
    subscription_id = handout.subscription.id
    epoch, deadline_ns, counts = handout.epoch, handout.deadline_ns, handout.counts
    deliveries: list[Delivery] = []
    for piece in pieces:
        event, letter = piece.published, piece.letter
        within = slice(piece.start - event.first, piece.stop - event.first)
        created_ns = piece.created_ns
        dead_letter = _dead_letter(queue, letter)
        deliveries += [
            Delivery(  # positional arguments take half as long as named ones
                name,
                index,
                created_ns,
                salt,
                body,
                envelope,
                dead_letter,
                subscription_id,
                epoch,
                counts.get(index, 1) if counts else 1,
                deadline_ns,
            )
            for index, body, envelope in zip(
                (letter.letter_index,) if letter else range(piece.start, piece.stop),
                event.bodies[within],
                repeat(PLAIN) if event.envelopes is None else event.envelopes[within],
                strict=False,  # the repeated envelope has no end
            )
        ]
    return deliveries


def _salt(queue: Queue) -> int:
    """The salt for ids: a dead letter keeps its id, and so the salt of the queue it came from."""
    return queue.source.salt if queue.source is not None else queue.salt


def _dead_letter(queue: Queue, letter: DeadLettered | None) -> DeadLetter | None:
    if letter is None or queue.source is None:
        return None
    return DeadLetter(
        queue=queue.source.name,
        subscription=letter.subscription,
        index=letter.index,
        deliveries=letter.deliveries,
        reason=letter.reason,
        failed_at_ns=letter.at_ns,
    )
