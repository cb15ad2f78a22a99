"""Bodies that arrived in one buffer and stay in it."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import overload

__all__ = ["PackedBodies"]


class PackedBodies(Sequence[bytes]):
    """Bodies back to back in one buffer. A ``bytes`` object is made for a body when it is accessed.

    The buffer must never change. It lives as long as this does.
    """

    __slots__ = ("_bounds", "data", "sizes")

    def __init__(self, data: memoryview, sizes: array[int]) -> None:
        """``sizes`` are of type ``I`` and add up to the bytes of ``data``."""
        self.data = data
        self.sizes = sizes
        self._bounds: array[int] | None = None  # where each begins, and the end of the last

    def __len__(self) -> int:
        return len(self.sizes)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self[:])

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> list[bytes]: ...
    def __getitem__(self, at: int | slice) -> bytes | list[bytes]:
        bounds = self._bounds
        if bounds is None:
            bounds = self._bounds = array("I", accumulate(self.sizes, initial=0))
        if not isinstance(at, slice):
            place = range(len(self.sizes))[at]
            return bytes(self.data[bounds[place] : bounds[place + 1]])
        start, stop, step = at.indices(len(self.sizes))
        if step != 1:
            return [self[place] for place in range(start, stop, step)]
        if start >= stop:
            return []
        first = bounds[start]
        data = bytes(self.data[first : bounds[stop]])
        return [data[a - first : b - first] for a, b in pairwise(bounds[start : stop + 1])]
