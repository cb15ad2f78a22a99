"""One record of the log.

::

    length   u32   bytes of payload
    crc      u32   CRC-32C of length, kind and payload
    kind     u8    what the payload is; 0 is never used
    payload  length bytes

All integers are little-endian. Space that was allocated and never written reads as zeros, so nine
zero bytes where a record should begin are the end of the log. Changing this layout changes the
format version: see ``segment.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

__all__ = [
    "HEADER_BYTES",
    "MARK",
    "MARK_BYTES",
    "MAX_PAYLOAD_BYTES",
    "Ending",
    "Record",
    "Scan",
    "decode",
    "decode_mark",
    "encode",
    "encode_mark",
    "find_marks",
    "frame",
    "size_at",
]

_HEADER = Struct("<IIB")
_LENGTH_AND_KIND = Struct("<IB")
_MARK = Struct("<8sQ")

HEADER_BYTES = _HEADER.size

# A record and a segment's header must fit into 32-bit offsets.
MAX_PAYLOAD_BYTES = 2**32 - 2**12

# The sync mark: its payload is the segment's salt and the position below which everything was known
# to be durable when the mark was written. An invalid record below that position was once synced, so
# it is corruption; an invalid record that no mark covers is the torn end of the last write.
MARK = 1
MARK_BYTES = _HEADER.size + _MARK.size


class Record(NamedTuple):
    """A record whose CRC matched. ``payload`` is a view of the buffer it was read from."""

    kind: int
    payload: memoryview


class Ending(Enum):
    """Why reading stopped."""

    END = "end"  # zeros, or the end of the buffer
    INVALID = "invalid"  # not a whole record, or its CRC does not match


def frame(kind: int, *parts: bytes | memoryview) -> tuple[bytes, bytes]:
    """The header and the payload of a record: two buffers, so that the payload is copied once."""
    if not 0 < kind < 256:
        raise ValueError(f"a record's kind is 1 to 255, not {kind}")
    payload = b"".join(parts)
    length = len(payload)
    if length > MAX_PAYLOAD_BYTES:
        raise ValueError(f"a record holds at most {MAX_PAYLOAD_BYTES} bytes, not {length}")
    crc = crc32c(payload, crc32c(_LENGTH_AND_KIND.pack(length, kind)))
    return _HEADER.pack(length, crc, kind), payload


def encode(kind: int, *parts: bytes | memoryview) -> bytes:
    """The bytes of a record whose payload is the joined parts."""
    return b"".join(frame(kind, *parts))


def decode(buffer: memoryview, offset: int = 0) -> Record | Ending:
    """The record at ``offset``, or why there is none."""
    start = offset + HEADER_BYTES
    if start > len(buffer):
        return Ending.INVALID if any(buffer[offset:]) else Ending.END
    length, crc, kind = _HEADER.unpack_from(buffer, offset)
    if kind == 0:
        return Ending.INVALID if length or crc else Ending.END
    end = start + length
    if end > len(buffer):
        return Ending.INVALID
    if crc32c(buffer[start - 1 : end], crc32c(buffer[offset : offset + 4])) != crc:
        return Ending.INVALID
    return Record(kind, buffer[start:end])


def size_at(data: bytes | bytearray) -> int:
    """The size that the record at the beginning of ``data`` states, including its header."""
    return HEADER_BYTES + int.from_bytes(data[:4], "little")


class Scan:
    """The records of a buffer from ``offset`` on, up to the first invalid one.

    Yields ``(offset, kind, payload)``. Afterwards, ``offset`` is where it stopped, ``ending`` why.
    """

    def __init__(self, buffer: memoryview, offset: int = 0) -> None:
        self.offset = offset
        self.ending: Ending | None = None
        self._buffer = buffer

    def __iter__(self) -> Iterator[tuple[int, int, memoryview]]:
        # ``decode``, inlined: recovery reads millions of records here.
        buffer, offset, size = self._buffer, self.offset, len(self._buffer)
        unpack = _HEADER.unpack_from
        while (start := offset + HEADER_BYTES) <= size:
            length, crc, kind = unpack(buffer, offset)
            end = start + length
            if kind == 0 or end > size:
                break
            if crc32c(buffer[start - 1 : end], crc32c(buffer[offset : offset + 4])) != crc:
                break
            yield offset, kind, buffer[start:end]
            offset = end
        ending = decode(buffer, offset)
        assert isinstance(ending, Ending)
        self.offset, self.ending = offset, ending


def encode_mark(salt: bytes, synced: int) -> bytes:
    """A sync mark for the segment with this salt; always ``MARK_BYTES`` long."""
    return encode(MARK, _MARK.pack(salt, synced))


def decode_mark(payload: memoryview) -> int:
    """The synced position in a sync mark's payload."""
    return int(_MARK.unpack(payload)[1])


def find_marks(data: bytes, offset: int, salt: bytes) -> Iterator[int]:
    """The synced position of every sync mark from ``offset`` on, whatever damage lies between.

    The salt never leaves the log, so nothing that a client publishes can pass for a mark.
    """
    view = memoryview(data)
    found = data.find(salt, offset)
    while found >= 0:
        start = found - HEADER_BYTES
        if start >= offset:
            record = decode(view, start)
            if not isinstance(record, Ending) and record.kind == MARK:
                yield decode_mark(record.payload)
        found = data.find(salt, found + 1)
