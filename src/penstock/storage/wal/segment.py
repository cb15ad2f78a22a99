"""A segment: one file of the log.

::

    magic    8 bytes  b"PENSTOCK"
    version  u16      of everything in the file: this header and the records
    number   u64      of the segment, also its file name
    synced   u64      the position below which everything was durable when the file was made
    salt     8 bytes  random; what this segment's sync marks begin with
    crc      u32      CRC-32C of all the above

Records follow immediately. A segment gets its name only after its header is durable, so a segment
with a bad header is always corrupt, never half created.

To change the format: raise ``VERSION``; keep reading every earlier version (``read_header`` tells
them apart); add a segment of the old version to the test fixtures, with a test that reads it;
describe the change in ``docs/wal-format.md``. A version is never reused. The fields above stay
where they are in every version, so that an older Penstock can tell a newer segment from a damaged
one; new fields come after them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING

from crc32c import crc32c

from penstock.errors import CorruptLog, NewerFormat

if TYPE_CHECKING:
    from penstock.storage.wal.files import Files

__all__ = [
    "HEADER_BYTES",
    "SALT_BYTES",
    "VERSION",
    "SegmentHeader",
    "file_name",
    "file_number",
    "offset_of",
    "position_of",
    "read_header",
    "segment_numbers",
    "segment_of",
    "write_header",
]

VERSION = 2
SALT_BYTES = 8

_MAGIC = b"PENSTOCK"
_HEADER = Struct("<8sHQQ8s")
_CRC = Struct("<I")

HEADER_BYTES = _HEADER.size + _CRC.size

_NAME = re.compile(r"[0-9a-f]{16}\.log")


@dataclass(frozen=True, kw_only=True)
class SegmentHeader:
    """The header of a segment."""

    number: int
    synced: int
    salt: bytes
    version: int = VERSION


def file_name(number: int) -> str:
    """The name of the segment's file. Names sort like numbers."""
    return f"{number:016x}.log"


def file_number(name: str) -> int | None:
    """The number of the segment with this file name, or None if it is not a segment's name."""
    return int(name[:16], 16) if _NAME.fullmatch(name) else None


def segment_numbers(files: Files) -> list[int]:
    """The numbers of the segments in a directory, in order."""
    return [n for n in map(file_number, files.names()) if n is not None]


def position_of(segment: int, offset: int) -> int:
    """A place in the log as one number, which grows along the log."""
    return segment << 32 | offset


def segment_of(position: int) -> int:
    """The segment that a position is in."""
    return position >> 32


def offset_of(position: int) -> int:
    """The offset of a position in its segment's file."""
    return position & 0xFFFFFFFF


def write_header(header: SegmentHeader) -> bytes:
    """The first ``HEADER_BYTES`` bytes of the segment's file."""
    packed = _HEADER.pack(_MAGIC, VERSION, header.number, header.synced, header.salt)
    return packed + _CRC.pack(crc32c(packed))


def read_header(data: bytes, *, number: int, name: str | None = None) -> SegmentHeader:
    """The header of segment ``number``; ``name`` is its file, if not the usual one.

    Raises ``NewerFormat`` if a later version of Penstock wrote it, ``CorruptLog`` if it is damaged
    or belongs to another segment.
    """
    name = name or file_name(number)
    damaged = CorruptLog(
        f"the header of segment {name} is damaged: restore the file from a backup, or run "
        "`penstock wal repair` to keep what is readable",
        file=name,
        offset=0,
    )
    if len(data) < HEADER_BYTES:
        raise damaged
    magic, version, stated, synced, salt = _HEADER.unpack_from(data)
    (crc,) = _CRC.unpack_from(data, _HEADER.size)
    if magic != _MAGIC or crc32c(data[: _HEADER.size]) != crc:
        raise damaged
    if version > VERSION:
        raise NewerFormat(
            f"segment {name} has format version {version}, and this Penstock reads up to version "
            f"{VERSION}: upgrade Penstock"
        )
    if stated != number:
        raise damaged
    return SegmentHeader(number=number, synced=synced, salt=salt, version=version)
