"""Keys that count for a while, and the messages that came with them."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import compress
from typing import NamedTuple

__all__ = ["Keyed", "KeysDump", "RecentKeys"]

# Rows that are no longer needed are removed when there are so many, and are half of all.
_MOST_GONE = 1024


class Keyed(NamedTuple):
    """When a key came, and with which messages: ``start <= index < stop``."""

    at_ns: int
    start: int
    stop: int


class KeysDump(NamedTuple):
    """The columns; those of numbers as bytes."""

    keys: list[str]
    times: bytes
    starts: bytes
    stops: bytes


class RecentKeys:
    """The keys in the order of their arrival, in which they are also forgotten.

    In columns, because there may be hundreds of thousands: these take less than half the memory of
    an object for each, and are nothing to the garbage collector.

    The invariant: `_rows` has the row of each key that counts. Rows are numbered from the first one
    ever, and `_first` is the first that is still there. A row whose key is not in `_rows`, or has
    another row there, does not count any more; and neither do the first `_gone` rows.
    """

    __slots__ = ("_first", "_gone", "_keys", "_rows", "_starts", "_stops", "_times")

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._first = 0
        self._gone = 0
        self._keys: list[str] = []
        self._times = array("q")
        self._starts = array("Q")
        self._stops = array("Q")

    def __len__(self) -> int:
        return len(self._rows)

    def items(self) -> Iterator[tuple[str, Keyed]]:
        """In the order of their arrival."""
        rows = zip(self._keys, map(Keyed, self._times, self._starts, self._stops), strict=True)
        for row, (key, keyed) in enumerate(rows, self._first):
            if self._rows.get(key) == row:
                yield key, keyed

    def get(self, key: str) -> Keyed | None:
        row = self._rows.get(key)
        if row is None:
            return None
        at = row - self._first
        return Keyed(self._times[at], self._starts[at], self._stops[at])

    def note(self, key: str, at_ns: int, start: int, stop: int) -> None:
        """No earlier than those that were noted before. A key that comes again counts anew."""
        self._rows[key] = self._first + len(self._keys)
        self._keys.append(key)
        self._times.append(at_ns)
        self._starts.append(start)
        self._stops.append(stop)

    def forget(self, before_ns: int) -> list[str]:
        """Forget the keys that came at that time or earlier, and return them."""
        at, keys, times = self._gone, self._keys, self._times
        forgotten = []
        while at < len(keys) and times[at] <= before_ns:
            key = keys[at]
            if self._rows.get(key) == self._first + at:
                del self._rows[key]
                forgotten.append(key)
            at += 1
        self._gone = at
        if at > _MOST_GONE and 2 * at > len(keys):
            for column in (keys, times, self._starts, self._stops):
                del column[:at]
            self._first += at
            self._gone = 0
        return forgotten

    def within(self, first: int, stop: int) -> list[str]:
        """The keys whose messages are among ``[first, stop)``, or on both sides of it."""
        return [key for key, keyed in self.items() if keyed.start < stop and first < keyed.stop]

    def drop(self, key: str) -> None:
        del self._rows[key]

    def dump(self) -> KeysDump:
        gone = self._gone
        keys, times = self._keys[gone:], self._times[gone:]
        starts, stops = self._starts[gone:], self._stops[gone:]
        if len(self._rows) < len(keys):
            # There are rows between the others that do not count.
            rows = self._rows
            counts = [rows.get(key) == row for row, key in enumerate(keys, self._first + gone)]
            keys = list(compress(keys, counts))
            times = array("q", compress(times, counts))
            starts, stops = (array("Q", compress(column, counts)) for column in (starts, stops))
        return KeysDump(keys, times.tobytes(), starts.tobytes(), stops.tobytes())

    @classmethod
    def load(cls, dump: KeysDump) -> RecentKeys:
        found = cls()
        found._keys = dump.keys
        found._rows = {key: row for row, key in enumerate(dump.keys)}
        found._times = array("q", dump.times)
        found._starts = array("Q", dump.starts)
        found._stops = array("Q", dump.stops)
        return found
