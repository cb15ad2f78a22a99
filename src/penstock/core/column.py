"""A growing column of integers, in a fraction of the memory of an array."""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

__all__ = ["BLOCK_BITS", "Column"]

BLOCK_BITS = 10
"""A block has ``2 ** BLOCK_BITS`` values: few enough to be alike, many enough to cost nothing."""

_HALF = {"Q": "I", "q": "I", "I": "H", "H": "B"}
_LOW = 0 if sys.byteorder == "little" else 1  # which half of an integer is the low one


class Column:
    """Integers at the positions 0, 1, … in blocks of ``2 ** bits``; only the last can grow.

    Each block but the last is *narrow*: the leading bytes that all its values share are kept once,
    as its base, and of each value just the other bytes. So ``base + block[i]`` is the value, and
    those of a block compare as their low parts do. The last block, `tail`, is plain, has the base
    0, and fewer values than the others. Append to it, and call `seal` as soon as it is full.

    Bytes are shared rather than a minimum subtracted, since arrays can be narrowed and widened by
    slices with a step, without arithmetic: 5 ns a value, a twentieth of what a loop takes.
    """

    __slots__ = ("_bases", "_bits", "_blocks", "_code", "_starts", "tail")

    def __init__(self, code: str, bits: int = BLOCK_BITS) -> None:
        """`code` is the type of the values as in `array`: one of Q, q, I."""
        self._code = code
        self._bits = bits
        self.tail = array(code)
        self._blocks = [self.tail]
        self._bases = array(code, [0])
        self._starts = array(code)  # the first value of each block but the last

    def __len__(self) -> int:
        return (len(self._starts) << self._bits) + len(self.tail)

    def __getitem__(self, at: int) -> int:
        block = at >> self._bits
        return self._bases[block] + self._blocks[block][at - (block << self._bits)]

    def part(self, low: int, high: int) -> array[int]:
        """The values at the positions ``[low, high)``, as a plain array."""
        found = array(self._code)
        for block, start, stop in self._spans(low, high):
            found += self._widened(block, start, stop)
        return found

    def _spans(self, low: int, high: int) -> Iterator[tuple[int, int, int]]:
        """The blocks that have the positions ``[low, high)``, and from where to where in each."""
        while low < high:
            block = low >> self._bits
            start = block << self._bits
            stop = min(high, start + (1 << self._bits))
            yield block, low - start, stop - start
            low = stop

    def _widened(self, block: int, low: int, high: int) -> array[int]:
        values = self._blocks[block][low:high]
        if values.typecode == self._code:
            return values
        wide = array(self._code, [self._bases[block]]) * len(values)
        pieces = array(values.typecode, wide.tobytes())
        step = wide.itemsize // values.itemsize
        pieces[_LOW * (step - 1) :: step] = values
        return array(self._code, pieces.tobytes())

    # Searches. They are for columns that ascend.

    def bisect_left(self, value: int) -> int:
        """The first position whose value is at least this."""
        if self.tail and self.tail[0] < value:
            block = len(self._starts)
        else:
            block = max(bisect_left(self._starts, value) - 1, 0)
        found = bisect_left(self._blocks[block], value - self._bases[block])
        return (block << self._bits) + found

    def bisect_right(self, value: int) -> int:
        """The first position whose value is more than this."""
        if self.tail and self.tail[0] <= value:
            block = len(self._starts)
        else:
            block = max(bisect_right(self._starts, value) - 1, 0)
        found = bisect_right(self._blocks[block], value - self._bases[block])
        return (block << self._bits) + found

    # Changes.

    def extend(self, values: array[int]) -> None:
        """Append values, which are of the column's own type."""
        values = self.tail + values
        size = 1 << self._bits
        full = len(values) - len(values) % size
        self.tail = values[full:]
        blocks = [_narrowed(values[start : start + size]) for start in range(0, full, size)]
        starts = values[:full:size]
        self._blocks[-1:] = [*blocks, self.tail]
        self._bases[-1:] = array(self._code, [*map(_base, starts, blocks), 0])
        self._starts += starts

    def seal(self) -> None:
        """Make the tail narrow, which is full, and begin another."""
        self.extend(array(self._code))

    def replace(self, at: int, values: array[int]) -> None:
        """Put other values in the place of those from a position on."""
        done = 0
        for block, start, stop in self._spans(at, at + len(values)):
            wide = self._widened(block, 0, 1 << self._bits)
            wide[start:stop] = values[done : done + stop - start]
            done += stop - start
            if block == len(self._starts):
                self.tail[:] = wide
            else:
                self._blocks[block] = _narrowed(wide)
                self._bases[block] = _base(wide[0], self._blocks[block])
                self._starts[block] = wide[0]

    def drop(self, blocks: int) -> None:
        """Remove this many blocks from the front, but never the last. Positions move."""
        del self._blocks[:blocks], self._bases[:blocks], self._starts[:blocks]


def _base(start: int, block: array[int]) -> int:
    return start - block[0]


def _narrowed(values: array[int]) -> array[int]:
    """The low parts of the values, as narrow as they can be while the high parts are all equal."""
    while half := _HALF.get(values.typecode):
        halves = array(half, values.tobytes())
        high = halves[1 - _LOW :: 2]
        if high != high[:1] * len(high):
            break
        values = halves[_LOW::2]
    return values
