"""From a data directory to a machine: load the checkpoint, then replay the log after it."""

from __future__ import annotations

from typing import NamedTuple

from penstock.core.events import DeadLettered, Lost, Published
from penstock.core.machine import Machine, Place
from penstock.core.snapshot import restore
from penstock.core.timeline import Batch, Timeline
from penstock.errors import CorruptLog
from penstock.storage.wal import codec, record
from penstock.storage.wal.checkpoint import (
    Checkpoint,
    SegmentIndex,
    load_index,
    newest_checkpoint,
)
from penstock.storage.wal.files import Files
from penstock.storage.wal.replay import FIRST_SEGMENT, Replay, damaged
from penstock.storage.wal.segment import (
    HEADER_BYTES,
    file_name,
    offset_of,
    position_of,
    read_header,
    segment_of,
)

__all__ = ["Recovered", "build_index", "load_segment_index", "recover"]


class Recovered(NamedTuple):
    """What was read: the checkpoint, if there is one yet, and the log after it.

    `replayed` is the number of events that were applied.
    """

    checkpoint: Checkpoint | None
    replay: Replay
    replayed: int


def recover(files: Files, machine: Machine) -> Recovered:
    """BLOCKING. Bring a new machine to the state that the directory holds. Changes no file.

    Raises `CorruptLog` with file and offset, and `NewerFormat`.
    """
    checkpoint = newest_checkpoint(files)
    first_segment = FIRST_SEGMENT
    synced = 0
    if checkpoint is not None:
        first_segment = checkpoint.segment
        synced = position_of(checkpoint.segment, HEADER_BYTES)
        _load_checkpoint(files, machine, checkpoint)
    replay = Replay(files, first_segment=first_segment, synced=synced)
    replayed = 0
    for position, kind, payload in replay:
        place = Place(position, record.HEADER_BYTES + len(payload))
        try:
            event = codec.decode(kind, payload)
        except codec.UNREADABLE as exc:
            raise _unreadable(file_name(segment_of(position)), offset_of(position)) from exc
        machine.apply(event, place)
        replayed += 1
    return Recovered(checkpoint, replay, replayed)


def _load_checkpoint(files: Files, machine: Machine, checkpoint: Checkpoint) -> None:
    """Restore the state, and the timelines from the indexes of the segments before it."""
    stragglers = restore(machine, checkpoint.machine)
    aside: dict[int, dict[int, Batch]] = {}
    for segment in checkpoint.segments:
        name = checkpoint.packs.get(segment) or file_name(segment)
        index = load_segment_index(files, segment, name)
        for queue_id, part in index.parts.items():
            queue = machine.queues_by_id.get(queue_id)
            if queue is not None:
                queue.timeline.load(part)
        for queue_id, batches in index.aside.items():
            aside.setdefault(queue_id, {}).update(batches)
    for queue in machine.queues.values():
        known = aside.get(queue.id, {})
        queue.stragglers = {
            straggler: known.get(straggler) or queue.timeline.batch(straggler)
            for straggler in stragglers[queue.id]
        }
        queue.timeline.trim(queue.first, queue.next)


def load_segment_index(files: Files, segment: int, name: str) -> SegmentIndex:
    """Load the index of a segment, or build it anew if its file is missing or unusable.

    Raises `CorruptLog` if the segment is missing or cannot be read.
    """
    if name not in files.names():
        raise CorruptLog(
            f"segment {name} is missing: restore the file from a backup, or run "
            "`penstock wal repair` to keep what is readable",
            file=name,
        )
    header = read_header(files.read_at(name, 0, HEADER_BYTES), number=segment, name=name)
    return load_index(files, segment, header.salt) or build_index(files, segment, name)


def build_index(files: Files, segment: int, name: str) -> SegmentIndex:
    """Build the index of a segment by reading it. Raises `CorruptLog` if it cannot be read."""
    data = files.read(name)
    header = read_header(data, number=segment, name=name)
    scan = record.Scan(memoryview(data), HEADER_BYTES)
    timelines: dict[int, Timeline] = {}
    for offset, kind, payload in scan:
        if kind == record.MARK:
            continue
        length = record.HEADER_BYTES + len(payload)
        try:
            event = codec.decode(kind, payload)
        except codec.UNREADABLE as exc:
            raise _unreadable(name, offset) from exc
        match event:
            case Published():
                queue_id, first, size = event.queue_id, event.first, event.size
            case DeadLettered():
                queue_id, first, size = event.dead_letter_queue_id, event.letter_index, 0
            case Lost():
                queue_id, first, size = event.queue_id, event.first, 0
            case _:
                continue  # it has no messages
        timelines.setdefault(queue_id, Timeline()).append(
            first, event.at_ns, size, position_of(segment, offset), length
        )
    # Unwritten space is damage as well: a sealed segment is truncated to its last record.
    if scan.offset < len(data):
        raise damaged(name, scan.offset)
    parts = {
        queue_id: timeline.dump(0, position_of(segment + 1, 0))
        for queue_id, timeline in timelines.items()
    }
    return SegmentIndex(salt=header.salt, parts=parts)


def _unreadable(name: str, offset: int) -> CorruptLog:
    """The error for a record that is whole but cannot be decoded."""
    return CorruptLog(
        f"segment {name} holds a record at offset {offset} that is no event, though its checksum "
        "is right: restore the file from a backup, or run `penstock wal repair` to keep what is "
        "readable",
        file=name,
        offset=offset,
    )
