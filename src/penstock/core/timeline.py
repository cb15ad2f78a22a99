"""When a queue's messages were published, how large they are, and where the storage has them."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from penstock.core.column import BLOCK_BITS, Column

__all__ = ["Batch", "Places", "Timeline"]


class Batch(NamedTuple):
    """One publish. `locator` and `length` are for the storage; the core only keeps them."""

    first: int
    created_ns: int
    locator: int
    length: int


class Places(NamedTuple):
    """The locators and lengths of consecutive batches, and the index where they end."""

    locators: array[int]
    lengths: array[int]
    stop: int


class Timeline:
    """One entry per publish, whether it holds one message or a thousand, in five columns.

    An entry takes 16 to 26 bytes; 36 as long as it is in the tail of the columns.

    Covers the indexes from the batch that holds the queue's first message up to its end. Every
    column but the lengths ascends.
    """

    __slots__ = (
        "_before",
        "_bits",
        "_created",
        "_dead",
        "_firsts",
        "_lengths",
        "_locators",
        "bytes_total",
    )

    def __init__(self, bits: int = BLOCK_BITS) -> None:
        self._firsts = Column("Q", bits)
        self._created = Column("q", bits)
        self._before = Column("Q", bits)  # bytes of all messages ever published before this batch
        self._locators = Column("Q", bits)
        self._lengths = Column("I", bits)
        self._bits = bits
        self._dead = 0  # entries at the front that are no longer covered; less than a block
        self.bytes_total = 0

    @property
    def _columns(self) -> tuple[Column, ...]:
        return self._firsts, self._created, self._before, self._locators, self._lengths

    def append(self, first: int, created_ns: int, size: int, locator: int, length: int) -> None:
        # Straight into the tails: a call for each column would cost more than all the rest here.
        tail = self._firsts.tail
        tail.append(first)
        self._created.tail.append(created_ns)
        self._before.tail.append(self.bytes_total)
        self._locators.tail.append(locator)
        self._lengths.tail.append(length)
        self.bytes_total += size
        if len(tail) >> self._bits:
            for column in self._columns:
                column.seal()

    def __len__(self) -> int:
        return len(self._firsts) - self._dead

    def _at(self, index: int) -> int:
        return self._firsts.bisect_right(index) - 1

    def _batch(self, at: int) -> Batch:
        return Batch(self._firsts[at], self._created[at], self._locators[at], self._lengths[at])

    def _batches(self, low: int, high: int) -> list[Batch]:
        if high - low == 1:  # as for every receive from batches; an item is quicker than a part
            return [self._batch(low)]
        columns = (self._firsts, self._created, self._locators, self._lengths)
        return list(map(Batch, *(column.part(low, high) for column in columns)))

    def batch(self, index: int) -> Batch:
        """The batch that holds an index; raises IndexError before the first batch kept."""
        at = self._at(index)
        if at < self._dead:
            raise IndexError(index)
        return self._batch(at)

    def batches(self, start: int, stop: int) -> list[Batch]:
        """The batches that hold any of the indexes ``[start, stop)``, ascending."""
        low = max(self._at(start), self._dead)
        return self._batches(low, self._firsts.bisect_left(stop))

    def places(self, start: int, stop: int, most_bytes: int) -> Places:
        """Where the messages ``[start, stop)`` are, in columns, to read very many of them.

        Ends early, before the first batch that begins beyond ``most_bytes``.
        """
        low = max(self._at(start), self._dead)
        high = self._firsts.bisect_left(stop)
        if low < high:
            within = self._before.bisect_right(self._before[low] + most_bytes)
            high = min(high, max(low + 1, within))
        end = self._firsts[high] if high < len(self._firsts) else stop
        return Places(self._locators.part(low, high), self._lengths.part(low, high), min(stop, end))

    def mean_bytes(self, index: int, next_index: int) -> tuple[int, int]:
        """The average size of a message in the batch that holds an index, and the batch's end."""
        at = max(self._at(index), self._dead)
        is_last = at + 1 >= len(self._firsts)
        after = self.bytes_total if is_last else self._before[at + 1]
        stop = next_index if is_last else self._firsts[at + 1]
        return (after - self._before[at]) // max(stop - self._firsts[at], 1) + 1, stop

    def created_ns(self, index: int) -> int | None:
        """None if the index lies before the first batch kept."""
        at = self._at(index)
        return self._created[at] if at >= self._dead else None

    def index_at_time(self, time_ns: int) -> int | None:
        """The first index created at or after a time."""
        at = max(self._created.bisect_left(time_ns), self._dead)
        return self._firsts[at] if at < len(self._firsts) else None

    def index_at_bytes(self, size: int) -> int | None:
        """The first index such that the messages from it on have at most ``size`` bytes."""
        at = max(self._before.bisect_left(self.bytes_total - size), self._dead)
        return self._firsts[at] if at < len(self._firsts) else None

    def bytes_from(self, index: int) -> int:
        """Bytes of the messages from the batch that holds an index up to the end."""
        at = max(self._at(index), self._dead)
        return self.bytes_total - self._before[at] if at < len(self._before) else 0

    def bytes_within(self, start: int, stop: int) -> int:
        """Bytes of the batches that hold any of the indexes ``[start, stop)``."""
        low = max(self._at(start), self._dead)
        high = self._firsts.bisect_left(stop)
        after = self._before[high] if high < len(self._before) else self.bytes_total
        return after - self._before[low]

    def trim(self, first: int, next_index: int) -> None:
        """Forget the batches that lie wholly before an index."""
        self._dead = len(self._firsts) if first >= next_index else max(self._dead, self._at(first))
        blocks = self._dead >> self._bits
        if blocks:
            for column in self._columns:
                column.drop(blocks)
            self._dead -= blocks << self._bits

    # For the storage. Locators ascend, so a range of them is a slice.

    def located(self, low: int, high: int) -> list[Batch]:
        """The batches whose locators lie in ``[low, high)``."""
        start = max(self._locators.bisect_left(low), self._dead)
        return self._batches(start, self._locators.bisect_left(high))

    def relocate(self, low: int, high: int, places: Sequence[tuple[int, int]]) -> None:
        """Give the batches located in ``[low, high)`` new locators and lengths, in order."""
        start = max(self._locators.bisect_left(low), self._dead)
        self._locators.replace(start, array("Q", (locator for locator, _ in places)))
        self._lengths.replace(start, array("I", (length for _, length in places)))

    def bytes_by_area(self, bits: int) -> Iterator[tuple[int, int, int]]:
        """For each area of ``2 ** bits`` locators: its number, batches, and bytes of messages."""
        at, count = self._dead, len(self._locators)
        while at < count:
            area = self._locators[at] >> bits
            end = self._locators.bisect_left(area + 1 << bits)
            after = self._before[end] if end < count else self.bytes_total
            yield area, end - at, after - self._before[at]
            at = end

    def dump(self, low: int, high: int) -> TimelinePart:
        """The columns of the batches located in ``[low, high)``."""
        start = max(self._locators.bisect_left(low), self._dead)
        stop = max(self._locators.bisect_left(high), start)
        after = self._before[stop] if stop < len(self._before) else self.bytes_total
        return TimelinePart(
            self._firsts.part(start, stop).tobytes(),
            self._created.part(start, stop).tobytes(),
            self._before.part(start, stop).tobytes(),
            self._locators.part(start, stop).tobytes(),
            self._lengths.part(start, stop).tobytes(),
            after,
        )

    def load(self, part: TimelinePart) -> None:
        """Append what `dump` returned."""
        before = array("Q", part.before)
        shift = self.bytes_total - before[0] if len(self) and before else 0
        if shift:
            # It was made from a single segment, which does not know what came before.
            before = array("Q", (size + shift for size in before))
        self._firsts.extend(array("Q", part.firsts))
        self._created.extend(array("q", part.created))
        self._before.extend(before)
        self._locators.extend(array("Q", part.locators))
        self._lengths.extend(array("I", part.lengths))
        self.bytes_total = part.bytes_total + shift


class TimelinePart(NamedTuple):
    """The columns of a part of a timeline, as bytes."""

    firsts: bytes
    created: bytes
    before: bytes
    locators: bytes
    lengths: bytes
    bytes_total: int
