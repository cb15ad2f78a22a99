"""When a queue's messages were published, how large they are, and where the storage has them."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

__all__ = ["Batch", "Places", "Timeline"]

# Dead entries are removed only once there are this many, and as many as live ones.
_CUT = 1024


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
    """One entry per publish, in columns: 36 bytes, whether it holds one message or a thousand.

    Covers the indexes from the batch that holds the queue's first message up to its end.
    """

    __slots__ = ("_before", "_created", "_dead", "_firsts", "_lengths", "_locators", "bytes_total")

    def __init__(self) -> None:
        self._firsts = array("Q")
        self._created = array("q")
        self._before = array("Q")  # bytes of all messages ever published before this batch
        self._locators = array("Q")
        self._lengths = array("I")
        self._dead = 0
        self.bytes_total = 0

    def append(self, first: int, created_ns: int, size: int, locator: int, length: int) -> None:
        self._firsts.append(first)
        self._created.append(created_ns)
        self._before.append(self.bytes_total)
        self._locators.append(locator)
        self._lengths.append(length)
        self.bytes_total += size

    def __len__(self) -> int:
        return len(self._firsts) - self._dead

    def _at(self, index: int) -> int:
        return bisect_right(self._firsts, index) - 1

    def _batches(self, low: int, high: int) -> list[Batch]:
        columns = (self._firsts, self._created, self._locators, self._lengths)
        return list(map(Batch, *(column[low:high] for column in columns)))

    def batch(self, index: int) -> Batch:
        """The batch that holds an index; raises IndexError before the first batch kept."""
        at = self._at(index)
        if at < self._dead:
            raise IndexError(index)
        return Batch(self._firsts[at], self._created[at], self._locators[at], self._lengths[at])

    def batches(self, start: int, stop: int) -> list[Batch]:
        """The batches that hold any of the indexes ``[start, stop)``, ascending."""
        low = max(self._at(start), self._dead)
        return self._batches(low, bisect_left(self._firsts, stop, low))

    def places(self, start: int, stop: int, most_bytes: int) -> Places:
        """Where the messages ``[start, stop)`` are, in columns, to read very many of them.

        Ends early, before the first batch that begins beyond ``most_bytes``.
        """
        low = max(self._at(start), self._dead)
        high = bisect_left(self._firsts, stop, low)
        if low < high:
            high = bisect_right(self._before, self._before[low] + most_bytes, low + 1, high)
        end = self._firsts[high] if high < len(self._firsts) else stop
        return Places(self._locators[low:high], self._lengths[low:high], min(stop, end))

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
        at = bisect_left(self._created, time_ns, self._dead)
        return self._firsts[at] if at < len(self._firsts) else None

    def index_at_bytes(self, size: int) -> int | None:
        """The first index such that the messages from it on have at most ``size`` bytes."""
        at = bisect_left(self._before, self.bytes_total - size, self._dead)
        return self._firsts[at] if at < len(self._firsts) else None

    def bytes_from(self, index: int) -> int:
        """Bytes of the messages from the batch that holds an index up to the end."""
        at = max(self._at(index), self._dead)
        return self.bytes_total - self._before[at] if at < len(self._before) else 0

    def trim(self, first: int, next_index: int) -> None:
        """Forget the batches that lie wholly before an index."""
        self._dead = len(self._firsts) if first >= next_index else max(self._dead, self._at(first))
        if self._dead >= _CUT and self._dead >= len(self):
            for column in (
                self._firsts,
                self._created,
                self._before,
                self._locators,
                self._lengths,
            ):
                del column[: self._dead]
            self._dead = 0

    # For the storage. Locators ascend, so a range of them is a slice.

    def located(self, low: int, high: int) -> list[Batch]:
        """The batches whose locators lie in ``[low, high)``."""
        start = bisect_left(self._locators, low, self._dead)
        return self._batches(start, bisect_left(self._locators, high, start))

    def relocate(self, low: int, high: int, places: Sequence[tuple[int, int]]) -> None:
        """Give the batches located in ``[low, high)`` new locators and lengths, in order."""
        start = bisect_left(self._locators, low, self._dead)
        for at, (locator, length) in enumerate(places, start):
            self._locators[at] = locator
            self._lengths[at] = length

    def bytes_by_area(self, bits: int) -> Iterator[tuple[int, int, int]]:
        """For each area of ``2 ** bits`` locators: its number, batches, and bytes of messages."""
        at, count = self._dead, len(self._locators)
        while at < count:
            area = self._locators[at] >> bits
            end = bisect_left(self._locators, area + 1 << bits, at)
            after = self._before[end] if end < count else self.bytes_total
            yield area, end - at, after - self._before[at]
            at = end

    def dump(self, low: int, high: int) -> TimelinePart:
        """The columns of the batches located in ``[low, high)``."""
        start = bisect_left(self._locators, low, self._dead)
        stop = bisect_left(self._locators, high, start)
        after = self._before[stop] if stop < len(self._before) else self.bytes_total
        return TimelinePart(
            self._firsts[start:stop].tobytes(),
            self._created[start:stop].tobytes(),
            self._before[start:stop].tobytes(),
            self._locators[start:stop].tobytes(),
            self._lengths[start:stop].tobytes(),
            after,
        )

    def load(self, part: TimelinePart) -> None:
        """Append what `dump` returned."""
        before = array("Q", part.before)
        shift = self.bytes_total - before[0] if len(self) and before else 0
        self._firsts.frombytes(part.firsts)
        self._created.frombytes(part.created)
        if shift:
            # It was made from a single segment, which does not know what came before.
            before = array("Q", (size + shift for size in before))
        self._before.extend(before)
        self._locators.frombytes(part.locators)
        self._lengths.frombytes(part.lengths)
        self.bytes_total = part.bytes_total + shift


class TimelinePart(NamedTuple):
    """The columns of a part of a timeline, as bytes."""

    firsts: bytes
    created: bytes
    before: bytes
    locators: bytes
    lengths: bytes
    bytes_total: int
