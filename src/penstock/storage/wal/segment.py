"""A segment: one file of the log.

::

    magic    8 bytes  b"PENSTOCK"
    version  u16      of everything in the file: this header and the records
    number   u64      of the segment, also its file name
    synced   u64      the position below which everything was durable when the file was made
    salt     8 bytes  random; what this segment's sync marks begin with
    crc      u32      CRC-32C of all the above

Records follow at once. A segment gets its name only after its header is durable, so a segment whose
header is wrong is always corrupt, never half made.

To change the format: raise ``VERSION``; keep reading every version before it (``read_header`` is
where they part); put a segment of the old version under the fixtures of the tests, with a test that
reads it; describe the change in ``docs/wal-format.md``. A version is never used again. The bytes
above stay where they are in every version, so that an older Penstock can tell a newer segment from
a damaged one; a version that needs more puts it behind them.
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
    """What a segment says of itself."""

    number: int
    synced: int
    salt: bytes
    version: int = VERSION


def file_name(number: int) -> str:
    """The name of the segment's file; names sort as numbers do."""
    return f"{number:016x}.log"


def file_number(name: str) -> int | None:
    """The number of the segment with this file name, or None when it is no segment's name."""
    return int(name[:16], 16) if _NAME.fullmatch(name) else None


def segment_numbers(files: Files) -> list[int]:
    """The numbers of the segments in a directory, in order."""
    return [n for n in map(file_number, files.names()) if n is not None]


def position_of(segment: int, offset: int) -> int:
    """A place in the log as one number: later places are greater."""
    return segment << 32 | offset


def segment_of(position: int) -> int:
    """The segment that a position is in."""
    return position >> 32


def offset_of(position: int) -> int:
    """Where in its segment's file a position is."""
    return position & 0xFFFFFFFF


def write_header(header: SegmentHeader) -> bytes:
    """The first ``HEADER_BYTES`` bytes of the segment's file."""
    packed = _HEADER.pack(_MAGIC, VERSION, header.number, header.synced, header.salt)
    return packed + _CRC.pack(crc32c(packed))


def read_header(data: bytes, *, number: int, name: str | None = None) -> SegmentHeader:
    """The header of segment ``number``, in the file ``name`` if that is another than its own.

    Raises ``NewerFormat`` when a later version of Penstock wrote it, ``CorruptLog`` when its bytes
    are not what was written or belong to another segment.
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
