"""Files beside the log that make recovery short: checkpoints, and an index for each segment.

A **checkpoint**, ``<number>.ckpt``, holds the machine's state at the beginning of segment
``<number>``, without the timelines. Recovery loads it and replays the log from that segment on.

A segment's **index**, ``<number>.idx``, says which batches of which queues the segment holds, and
where. It is written when a checkpoint has passed the segment, and can be rebuilt from the segment.
It has the salt of the file that it describes.

Both are ``magic, version u16, CRC-32C u32, MessagePack``; the CRC covers the version and the
MessagePack. They are written atomically. A newer version is refused, a damaged index is rebuilt, a
damaged checkpoint is corruption.
"""

from __future__ import annotations

import re
from struct import Struct
from typing import TypeVar

import msgspec
from crc32c import crc32c

from penstock.core.machine import Machine
from penstock.core.snapshot import MachineSnapshot
from penstock.core.timeline import Batch, TimelinePart
from penstock.errors import CorruptLog, NewerFormat
from penstock.storage.wal.files import Files
from penstock.storage.wal.pieces import pieces
from penstock.storage.wal.segment import position_of

__all__ = [
    "Checkpoint",
    "SegmentIndex",
    "checkpoint_name",
    "encode",
    "index_name",
    "load_checkpoint",
    "load_index",
    "newest_checkpoint",
    "numbers_of",
    "save",
    "segment_index",
]

VERSION = 3

_HEADER = Struct("<8sHI")
_VERSION = Struct("<H")
_MAGIC = b"PENSTATE"

T = TypeVar("T", bound=msgspec.Struct)


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The state before the first record of `segment`. `segments` are the older ones still needed.

    `packs` maps compacted segments to their files.
    """

    segment: int
    segments: list[int]
    packs: dict[int, str]
    machine: MachineSnapshot


class SegmentIndex(msgspec.Struct, frozen=True, kw_only=True):
    """Batches by queue id, and the salt of the segment file they are in.

    `aside` has the batches of stragglers, which the timeline has dropped, by the straggler's index.
    """

    salt: bytes
    parts: dict[int, TimelinePart]
    aside: dict[int, dict[int, Batch]] = {}


def checkpoint_name(segment: int) -> str:
    return f"{segment:016x}.ckpt"


def index_name(segment: int) -> str:
    return f"{segment:016x}.idx"


def segment_index(machine: Machine, segment: int) -> SegmentIndex:
    """The index of a segment, from the machine's timelines. The caller fills in the salt."""
    low, high = position_of(segment, 0), position_of(segment + 1, 0)
    parts = {queue.id: queue.timeline.dump(low, high) for queue in machine.queues.values()}
    aside = {
        queue.id: {i: b for i, b in queue.stragglers.items() if low <= b.locator < high}
        for queue in machine.queues.values()
    }
    return SegmentIndex(
        salt=b"",
        parts={queue_id: part for queue_id, part in parts.items() if part.firsts},
        aside={queue_id: batches for queue_id, batches in aside.items() if batches},
    )


def numbers_of(files: Files, ending: str) -> list[int]:
    """The segment numbers that files with this ending are named after, ascending."""
    pattern = re.compile(rf"([0-9a-f]{{16}})\.{ending}")
    matches = map(pattern.fullmatch, files.names())
    return sorted(int(match[1], 16) for match in matches if match)


def encode(value: Checkpoint | SegmentIndex) -> bytes:
    """The content of the file, with its header. Threads get their turn meanwhile."""
    parts = list(pieces(value))
    crc = _crc(VERSION, *parts)
    return b"".join([_HEADER.pack(_MAGIC, VERSION, crc), *parts])


def _crc(version: int, *parts: bytes | memoryview) -> int:
    """Covers the version, so that damage to it is not taken for a newer format."""
    crc = crc32c(_VERSION.pack(version))
    for part in parts:
        crc = crc32c(part, crc)
    return crc


def save(files: Files, name: str, data: bytes) -> None:
    """BLOCKING. Write the file atomically; it is durable on return."""
    files.replace(name, data)


def newest_checkpoint(files: Files) -> Checkpoint | None:
    """None if there is none. Raises `CorruptLog` if it is damaged.

    An older one is no substitute: the log after that may no longer be complete.
    """
    numbers = numbers_of(files, "ckpt")
    return load_checkpoint(files, numbers[-1]) if numbers else None


def load_checkpoint(files: Files, segment: int) -> Checkpoint:
    """Raises `CorruptLog` if it is missing or damaged, and `NewerFormat`."""
    name = checkpoint_name(segment)
    found = _load(files, name, Checkpoint)
    if found is None:
        raise CorruptLog(
            f"checkpoint {name} is damaged: restore the file from a backup, or run "
            "`penstock wal repair` to keep what is readable",
            file=name,
        )
    return found


def load_index(files: Files, segment: int, salt: bytes | None) -> SegmentIndex | None:
    """None if it is missing, damaged, or of a file with another salt.

    Without ``salt``, that of any file will do.
    """
    found = _load(files, index_name(segment), SegmentIndex)
    return found if found is not None and salt in (None, found.salt) else None


def _load(files: Files, name: str, kind: type[T]) -> T | None:
    """None if the file is missing or damaged. Raises `NewerFormat`."""
    if name not in files.names():
        return None
    data = files.read(name)
    if len(data) < _HEADER.size:
        return None
    magic, version, crc = _HEADER.unpack_from(data)
    body = memoryview(data)[_HEADER.size :]
    if magic != _MAGIC or _crc(version, body) != crc:
        return None
    if version > VERSION:
        raise NewerFormat(
            f"{name} has format version {version}, and this Penstock reads up to version "
            f"{VERSION}: upgrade Penstock"
        )
    return msgspec.msgpack.decode(body, type=kind)
