"""Reading many records at once, in a thread: a few large reads, and only framing is decoded."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from penstock.errors import CorruptLog, StorageError
from penstock.storage.block import Block
from penstock.storage.wal.codec import PUBLISHED, decode_block
from penstock.storage.wal.files import Files
from penstock.storage.wal.record import Ending, decode
from penstock.storage.wal.segment import offset_of, segment_of

__all__ = ["failed_read", "read_blocks", "unreadable"]

# Records closer together than this are read in one go, with what lies between them.
_GAP_BYTES = 64 * 1024


class _Span(NamedTuple):
    """Records of one segment that are read together: ``low <= position < high``."""

    segment: int
    begin: int
    end: int
    low: int
    high: int


def read_blocks(
    files: Files,
    names: Mapping[int, str],
    locators: array[int],
    lengths: array[int],
    queue_id: int,
) -> list[Block]:
    """BLOCKING. The messages of a queue in these records; records without messages are skipped.

    ``names`` maps segments to files. Raises `CorruptLog` and `StorageError`.
    """
    blocks: list[Block] = []
    for span in _spans(locators, lengths):
        name = names[span.segment]
        try:
            data = memoryview(files.read_at(name, span.begin, span.end - span.begin))
        except OSError as exc:
            raise failed_read(exc, name, span.begin) from exc
        for at in range(span.low, span.high):
            offset = offset_of(locators[at])
            record = decode(data, offset - span.begin)
            if isinstance(record, Ending):
                raise unreadable(name, offset)
            if record.kind == PUBLISHED:
                found, block = decode_block(record.payload)
                if found != queue_id:
                    raise unreadable(name, offset)
                blocks.append(block)
    return blocks


def _spans(locators: array[int], lengths: array[int]) -> Iterator[_Span]:
    low, count = 0, len(locators)
    while low < count:
        segment, begin = segment_of(locators[low]), offset_of(locators[low])
        end = begin + lengths[low]
        high = low + 1
        while high < count:
            offset = offset_of(locators[high])
            if segment_of(locators[high]) != segment or not 0 <= offset - end <= _GAP_BYTES:
                break
            end = offset + lengths[high]
            high += 1
        yield _Span(segment, begin, end, low, high)
        low = high


def failed_read(exc: OSError, name: str, offset: int) -> StorageError:
    """Only a missing file counts as damage: other failures say nothing about its content."""
    if isinstance(exc, FileNotFoundError):
        return unreadable(name, offset)
    return StorageError(
        f"the record at offset {offset} of {name} could not be read now ({exc.strerror or exc}): "
        "try again"
    )


def unreadable(name: str, offset: int) -> CorruptLog:
    return CorruptLog(
        f"the record at offset {offset} of {name} is damaged: restore the file from a backup, or "
        "run `penstock wal repair` to keep what is readable",
        file=name,
        offset=offset,
    )
