"""Which segments can be removed, and how a segment that is mostly dead is packed.

A pack, ``<segment>-<checkpoint>.pack``, holds the records of a segment that are still needed. It
takes the segment's place under the same number, so that positions still ascend along a queue.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from penstock.core.events import Published
from penstock.core.machine import Machine
from penstock.core.timeline import Batch
from penstock.storage.wal import codec, record
from penstock.storage.wal.files import Files
from penstock.storage.wal.segment import (
    HEADER_BYTES,
    SALT_BYTES,
    SegmentHeader,
    offset_of,
    position_of,
    segment_of,
    write_header,
)

__all__ = [
    "SPARSE",
    "Live",
    "Moved",
    "live_batches",
    "live_bytes",
    "pack",
    "pack_name",
    "pack_names",
    "relocate",
]

# A segment is packed if less than this fraction of it is needed.
SPARSE = 0.25
# Roughly what a record takes besides the messages in it.
RECORD_BYTES = 64
# A position without these low bits is the number of the segment: see `segment_of`.
SEGMENT_BITS = 32

_NAME = re.compile(r"([0-9a-f]{16})-([0-9a-f]{16})\.pack")


class Live(NamedTuple):
    """A record that a queue still needs: the whole batch, or only the `straggler` in it."""

    queue_id: int
    batch: Batch
    straggler: int | None


class Moved(NamedTuple):
    """Where a pack holds a live record."""

    live: Live
    locator: int
    length: int


def pack_name(segment: int, checkpoint: int) -> str:
    return f"{segment:016x}-{checkpoint:016x}.pack"


def pack_names(names: Iterable[str]) -> list[str]:
    """Those of the names that packs have."""
    return [name for name in names if _NAME.fullmatch(name)]


def live_batches(machine: Machine, segment: int) -> list[Live]:
    """The records of a segment that are still needed, ascending by position."""
    low, high = position_of(segment, 0), position_of(segment + 1, 0)
    found: list[Live] = []
    for queue in machine.queues.values():
        batches = queue.timeline.located(low, high)
        whole = {batch.locator for batch in batches}
        found += [Live(queue.id, batch, None) for batch in batches]
        found += [
            Live(queue.id, batch, index)
            for index, batch in queue.stragglers.items()
            if low <= batch.locator < high and batch.locator not in whole
        ]
    return sorted(found, key=lambda live: (live.batch.locator, live.straggler or 0))


def pack(
    files: Files,
    *,
    source: str,
    name: str,
    segment: int,
    live: list[Live],
    random_bytes: Callable[[int], bytes],
) -> list[Moved]:
    """BLOCKING. Write the live records of ``source`` to the pack ``name``; durable on return.

    Nothing refers to the pack yet: see `relocate`.
    """
    header = SegmentHeader(number=segment, synced=0, salt=random_bytes(SALT_BYTES))
    parts = [write_header(header)]
    offset = HEADER_BYTES
    moved: list[Moved] = []
    for entry in live:
        data = files.read_at(source, offset_of(entry.batch.locator), entry.batch.length)
        if entry.straggler is not None:
            data = _single_message_record(data, entry.straggler)
        moved.append(Moved(entry, position_of(segment, offset), len(data)))
        parts.append(data)
        offset += len(data)
    files.replace(name, b"".join(parts))
    return moved


def _single_message_record(data: bytes, index: int) -> bytes:
    """The record of a batch, reduced to one message. A dead letter's record stays as it is."""
    found = record.decode(memoryview(data))
    if isinstance(found, record.Ending) or found.kind != codec.PUBLISHED:
        return data
    event = codec.decode_published(found.payload, with_bodies=True)
    at = index - event.first
    envelope = event.envelopes[at] if event.envelopes else None
    one = Published(
        at_ns=event.at_ns,
        queue_id=event.queue_id,
        first=index,
        count=1,
        size=0,
        bodies=[event.bodies[at]],
        heads=None if envelope is None else [envelope.encode()],
    )
    kind, parts = codec.encode(one)
    return record.encode(kind, *parts)


def relocate(machine: Machine, segment: int, moved: list[Moved]) -> None:
    """Point the machine to the records of a segment in its pack.

    Since `live_batches`, some may no longer be needed, or only a straggler of a batch.
    """
    low, high = position_of(segment, 0), position_of(segment + 1, 0)
    whole = {entry.live.batch.locator: entry for entry in moved if entry.live.straggler is None}
    single = {
        (entry.live.queue_id, entry.live.straggler): entry
        for entry in moved
        if entry.live.straggler is not None
    }
    for queue in machine.queues.values():
        batches = [whole[batch.locator] for batch in queue.timeline.located(low, high)]
        queue.timeline.relocate(low, high, [(entry.locator, entry.length) for entry in batches])
        for index, batch in queue.stragglers.items():
            if low <= batch.locator < high:
                own = single.get((queue.id, index))
                entry = own or whole[batch.locator]
                queue.stragglers[index] = batch._replace(
                    first=index if own else batch.first,
                    locator=entry.locator,
                    length=entry.length,
                )


def live_bytes(machine: Machine) -> dict[int, int]:
    """Roughly how many bytes of each segment are needed. A segment without an entry is dead."""
    live: dict[int, int] = {}
    for queue in machine.queues.values():
        for segment, records, size in queue.timeline.bytes_by_area(SEGMENT_BITS):
            live[segment] = live.get(segment, 0) + size + records * RECORD_BYTES
        for batch in queue.stragglers.values():
            segment = segment_of(batch.locator)
            live[segment] = live.get(segment, 0) + batch.length
    return live
