"""Messages in bulk, in columns as the log keeps them, for reading very many."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from penstock.core.bodies import PackedBodies
from penstock.core.events import Published
from penstock.core.message import DeadLetter, Message

__all__ = ["Block", "Chunk", "block_of", "message_block"]


class Block(NamedTuple):
    """Consecutive messages of one publish, without an object for each.

    `origin` is the index from which the ids are made: the first message's own or, for a dead
    letter, that of the message that failed. `heads` are the encoded envelopes, empty for a plain
    message; None if all are plain.
    """

    first: int
    origin: int
    created_ns: int
    sizes: array[int]  # of the bodies
    bodies: memoryview  # back to back
    heads: Sequence[bytes | memoryview] | None
    letter: DeadLetter | None = None

    def within(self, start: int, stop: int) -> Block | None:
        """Its messages ``start <= index < stop``; None if there are none."""
        low = max(start - self.first, 0)
        high = min(stop - self.first, len(self.sizes))
        if low == 0 and high == len(self.sizes):
            return self
        if low >= high:
            return None
        begin = sum(self.sizes[:low])
        sizes = self.sizes[low:high]
        return Block(
            self.first + low,
            self.origin + low,
            self.created_ns,
            sizes,
            self.bodies[begin : begin + sum(sizes)],
            None if self.heads is None else self.heads[low:high],
        )

    def each_body(self) -> list[bytes]:
        """The bodies, one by one."""
        data = bytes(self.bodies)
        ends = list(accumulate(self.sizes))
        return [data[end - size : end] for end, size in zip(ends, self.sizes, strict=True)]


class Chunk(NamedTuple):
    """A part of an index range. `next` is where to go on.

    `salt` identifies the queue: one that was deleted and created again has another salt.
    """

    blocks: list[Block]
    next: int
    salt: int


def block_of(event: Published) -> Block:
    """The block of a publish that is in memory."""
    heads = event.heads
    if heads is None and event.envelopes is not None:
        heads = [envelope.encode() for envelope in event.envelopes]
    bodies = event.bodies
    if isinstance(bodies, PackedBodies):
        sizes, data = bodies.sizes, bodies.data
    else:
        sizes, data = array("I", map(len, bodies)), memoryview(b"".join(bodies))
    return Block(event.first, event.first, event.at_ns, sizes, data, heads)


def message_block(message: Message) -> Block:
    """A block of one message, for dead letters, and for backends that have nothing better."""
    letter = message.dead_letter
    return Block(
        message.index,
        letter.index if letter else message.index,
        message.created_at_ns,
        array("I", [len(message.body)]),
        memoryview(message.body),
        [message.envelope.encode()],
        letter,
    )
