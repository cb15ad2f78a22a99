"""A growing column of integers, in a fraction of the memory of an array."""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right

__all__ = ["BLOCK_BITS", "Column"]

BLOCK_BITS = 10
"""A block has ``2 ** BLOCK_BITS`` values: few enough to be alike, enough to cost next to nothing
beside their bytes."""

_HALF = {"Q": "I", "q": "I", "I": "H", "H": "B"}
_LOW = 0 if sys.byteorder == "little" else 1  # which half of an integer is the low one


class Column:
    """Integers at the positions 0, 1, 2, … in blocks of ``2 ** bits``; only the last one grows.

    A block is *narrow*: of each value, it has just the low bytes, and all bytes above those are the
    same throughout the block. So its values differ by what their low bytes differ, and are in the
    same order. The last block, `tail`, is not narrow yet, and is never full: append to it, and call
    `seal` when it has ``2 ** bits`` values.

    Bytes are left out, rather than the least value subtracted, because slices with a step do that,
    and undo it, for a whole block: some 10 ns a value to seal, 5 to read. Arithmetic on each value
    takes ten times that.
    """

    __slots__ = ("_bits", "_blocks", "_code", "_starts", "tail")

    def __init__(self, code: str, bits: int = BLOCK_BITS) -> None:
        """`code` is the type of the values as in `array`: Q, q or I."""
        self._code = code
        self._bits = bits
        self.tail = array(code)
        self._blocks = [self.tail]
        self._starts = array(code)  # the first value of each block but the last

    def __len__(self) -> int:
        return (len(self._starts) << self._bits) + len(self.tail)

    def __getitem__(self, at: int) -> int:
        block = at >> self._bits
        values = self._blocks[block]
        value = values[at - (block << self._bits)]
        return value if values is self.tail else self._starts[block] + value - values[0]

    def part(self, low: int, high: int) -> array[int]:
        """The values at the positions ``[low, high)``, as a plain array."""
        found = array(self._code)
        while low < high:
            block = low >> self._bits
            start = block << self._bits
            stop = min(high, start + (1 << self._bits))
            values = self._blocks[block][low - start : stop - start]
            found.frombytes(_widened(values, array(self._code, [self._base(block)])))
            low = stop
        return found

    def _base(self, block: int) -> int:
        """What the values of a block have in common."""
        is_tail = block == len(self._starts)
        return 0 if is_tail else self._starts[block] - self._blocks[block][0]

    # Searches. They are for columns that ascend.

    def bisect_left(self, value: int) -> int:
        """The first position whose value is at least this."""
        if self.tail and self.tail[0] < value:
            return (len(self._starts) << self._bits) + bisect_left(self.tail, value)
        block = max(bisect_left(self._starts, value) - 1, 0)
        found = bisect_left(self._blocks[block], value - self._base(block))
        return (block << self._bits) + found

    def bisect_right(self, value: int) -> int:
        """The first position whose value is more than this."""
        if self.tail and self.tail[0] <= value:
            return (len(self._starts) << self._bits) + bisect_right(self.tail, value)
        block = max(bisect_right(self._starts, value) - 1, 0)
        found = bisect_right(self._blocks[block], value - self._base(block))
        return (block << self._bits) + found

    # Changes.

    def extend(self, values: array[int]) -> None:
        """Append values, which are of the column's own type."""
        values = self.tail + values
        size = 1 << self._bits
        full = len(values) - len(values) % size
        blocks = [_narrowed(values[start : start + size]) for start in range(0, full, size)]
        self.tail = values[full:]
        self._blocks[-1:] = [*blocks, self.tail]
        self._starts += values[:full:size]

    def seal(self) -> None:
        """Make the tail narrow, which is full, and begin another."""
        self.extend(array(self._code))

    def replace(self, at: int, values: array[int]) -> None:
        """Put other values in the place of those from a position on."""
        size, end = 1 << self._bits, at + len(values)
        for start in range(at >> self._bits << self._bits, end, size):
            wide = self.part(start, min(start + size, len(self)))
            low, high = max(at, start), min(end, start + size)
            wide[low - start : high - start] = values[low - at : high - at]
            block = start >> self._bits
            if block == len(self._starts):
                self.tail[:] = wide
            else:
                self._blocks[block] = _narrowed(wide)
                self._starts[block] = wide[0]

    def drop(self, blocks: int) -> None:
        """Remove this many blocks from the front, but not the tail. Positions move down."""
        del self._blocks[:blocks], self._starts[:blocks]


def _narrowed(values: array[int]) -> array[int]:
    """The low bytes of the values, as few as they have not all in common."""
    while half := _HALF.get(values.typecode):
        if (values[0] ^ values[-1]) >> 4 * values.itemsize:
            break  # seen without a copy; if values ascend, it is always seen here
        halves = array(half, values.tobytes())
        high = halves[1 - _LOW :: 2]
        if high[1:] != high[:-1]:
            break
        values = halves[_LOW::2]
    return values


def _widened(values: array[int], base: array[int]) -> bytes:
    """The bytes of the values in full, given in an array what they have in common."""
    step = base.itemsize // values.itemsize
    if step == 1:
        return values.tobytes()
    pieces = array(values.typecode, base.tobytes()) * len(values)
    pieces[_LOW * (step - 1) :: step] = values
    return pieces.tobytes()
