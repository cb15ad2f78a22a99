"""Making a damaged directory usable again, with everything that can be read of it.

`salvage` decides what is kept and what becomes of the rest. Here it is written:

* a segment without damage stays as it is;
* a damaged or missing one is replaced by a pack with its readable messages, and with a `Lost`
  record wherever messages are missing;
* a new checkpoint, before a new and empty segment, has the state.

Nothing is deleted. Before anything is written, every file that the new checkpoint does not need is
linked into ``damaged-<time>``; afterwards its first name is removed. Writing the checkpoint is the
commit: a crash before it leaves the directory as damaged as it was, a crash after it leaves some
files under both names.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import msgspec

from penstock.core.events import Lost
from penstock.core.runs import Run
from penstock.core.snapshot import take_snapshot
from penstock.core.timeline import Batch
from penstock.storage.wal import codec, compaction, record
from penstock.storage.wal.checkpoint import (
    Checkpoint,
    SegmentIndex,
    checkpoint_name,
    encode,
    index_name,
    load_index,
    numbers_of,
    save,
    segment_index,
)
from penstock.storage.wal.compaction import Live, Moved, pack_name
from penstock.storage.wal.files import DiskFiles
from penstock.storage.wal.offline.damage import Damage
from penstock.storage.wal.offline.layout import Progress, index_damage
from penstock.storage.wal.offline.salvage import Salvage, salvage
from penstock.storage.wal.segment import (
    HEADER_BYTES,
    SALT_BYTES,
    SegmentHeader,
    file_name,
    offset_of,
    position_of,
    segment_numbers,
    write_header,
)

__all__ = ["Repair", "plan_repair"]

_OWN = (".log", ".pack", ".idx", ".ckpt")


@dataclass(frozen=True, kw_only=True)
class Repair:
    """What a repair would do. ``apply`` does it.

    - ``lost``: index ranges of messages that cannot be read, by queue.
    - ``is_gapped``: whether events are missing, so that deliveries start over.
    - ``left_out``: the number of events after a gap that were of no use any more, by kind.
    - ``kept``: the number of messages kept, by queue.
    - ``aside``: the files that move to the directory of damaged ones.
    """

    damages: list[Damage]
    lost: dict[str, list[Run]]
    is_gapped: bool
    left_out: dict[str, int]
    kept: dict[str, int]
    aside: list[str]
    salvage: Salvage
    checkpoint: int  # the number of the new one

    @property
    def is_needed(self) -> bool:
        return bool(self.damages)

    @property
    def has_checkpoint(self) -> bool:
        """Without one, queues and subscriptions are known from the log alone."""
        return self.salvage.layout.checkpoint is not None

    def apply(
        self, files: DiskFiles, *, directory: str, random_bytes: Callable[[int], bytes]
    ) -> Path:
        """BLOCKING. The caller holds the lock. Returns the directory of the files put aside.

        Raises `OSError`; then nothing that matters has changed, and it can be tried again.
        """
        aside = _put_aside(files, self.aside, directory)
        packs = _write_logs(files, self.salvage, self.checkpoint, random_bytes)
        header = SegmentHeader(number=self.checkpoint, synced=0, salt=random_bytes(SALT_BYTES))
        save(files, file_name(self.checkpoint), write_header(header))
        machine = self.salvage.machine
        checkpoint = Checkpoint(
            segment=self.checkpoint,
            segments=_live_segments(self.salvage),
            packs=packs,
            machine=take_snapshot(machine),
        )
        save(files, checkpoint_name(self.checkpoint), encode(checkpoint))
        written = {index_name(segment) for segment in checkpoint.segments} | set(packs.values())
        written |= {file_name(self.checkpoint), checkpoint_name(self.checkpoint)}
        for name in self.aside:
            if name not in written:
                files.remove(name)
        files.sync_directory()
        return aside


def plan_repair(files: DiskFiles, *, rng: Random, progress: Progress | None = None) -> Repair:
    """BLOCKING. Read everything and decide; changes no file. Raises `NewerFormat`."""
    found = salvage(files, rng=rng, progress=progress)
    indexes = [index_damage(files, log) for log in found.layout.logs if log.is_sealed]
    newest = max(
        [*segment_numbers(files), *numbers_of(files, "ckpt"), *found.files, 0],
    )
    machine = found.machine
    return Repair(
        damages=found.damages + [damage for damage in indexes if damage is not None],
        lost=found.lost,
        is_gapped=found.is_gapped,
        left_out=dict(found.history.left_out),
        kept={
            queue.name: queue.feeds.everything.matched.count_within(queue.first, queue.next)
            + len(queue.stragglers)
            for queue in sorted(machine.queues.values(), key=lambda queue: queue.name)
        },
        aside=_unneeded(files, found),
        salvage=found,
        checkpoint=newest + 1,
    )


def _live_segments(found: Salvage) -> list[int]:
    return sorted(compaction.live_bytes(found.machine))


def _is_packed(found: Salvage, segment: int) -> bool:
    """Whether the segment must be replaced by a pack."""
    file = found.files.get(segment)
    if file is None or not file.is_good:
        return True
    return any(live.batch.length == 0 for live in compaction.live_batches(found.machine, segment))


def _index(found: Salvage, segment: int, salt: bytes) -> SegmentIndex:
    return msgspec.structs.replace(segment_index(found.machine, segment), salt=salt)


def _unneeded(files: DiskFiles, found: Salvage) -> list[str]:
    needed = {"spare.log"}
    for segment in _live_segments(found):
        if not _is_packed(found, segment):
            file = found.files[segment]
            needed.add(file.log.name)
            if load_index(files, segment, None) == _index(found, segment, file.salt):
                needed.add(index_name(segment))
    return [
        # Files that the log did not write, such as that of the users, are left alone.
        name
        for name in files.names()
        if name not in needed and name.endswith(_OWN)
    ]


def _put_aside(files: DiskFiles, names: list[str], directory: str) -> Path:
    aside = files.path / directory
    aside.mkdir(mode=0o700)
    for name in names:
        try:
            os.link(files.path / name, aside / name)
        except OSError:  # a file system without links
            shutil.copy2(files.path / name, aside / name)
    DiskFiles(aside).sync_directory()
    files.sync_directory()
    return aside


def _write_logs(
    files: DiskFiles, found: Salvage, checkpoint: int, random_bytes: Callable[[int], bytes]
) -> dict[int, str]:
    """Write packs where needed, and an index for every segment. Returns the packs."""
    packs: dict[int, str] = {}
    for segment in _live_segments(found):
        file = found.files.get(segment)
        if file is None or _is_packed(found, segment):
            salt = random_bytes(SALT_BYTES)
            packs[segment] = pack_name(segment, checkpoint)
            _write_pack(files, found, segment, packs[segment], salt)
        else:
            salt = file.salt
            if file.log.is_pack:
                packs[segment] = file.log.name
            if file.end < (file.log.bytes or 0):
                _cut(files, file.log.name, file.end)
        index = _index(found, segment, salt)
        if load_index(files, segment, None) != index:
            save(files, index_name(segment), encode(index))
    return packs


def _cut(files: DiskFiles, name: str, size: int) -> None:
    """Free the space that was allocated but never written."""
    file = files.open(name)
    try:
        file.truncate(size)
        file.sync()
    finally:
        file.close()


def _write_pack(files: DiskFiles, found: Salvage, segment: int, name: str, salt: bytes) -> None:
    file = found.files.get(segment)
    data = files.read(file.log.name) if file is not None else b""
    header = SegmentHeader(number=segment, synced=0, salt=salt)
    parts = [write_header(header)]
    size = HEADER_BYTES
    moved: dict[int, Moved] = {}
    for queue_id, batch, _ in compaction.live_batches(found.machine, segment):
        if batch.locator in moved:
            continue
        if batch.length:
            start = offset_of(batch.locator)
            part = data[start : start + batch.length]
        else:
            part = _lost(found, queue_id, batch)
        whole = Live(queue_id, batch, None)
        moved[batch.locator] = Moved(whole, position_of(segment, size), len(part))
        parts.append(part)
        size += len(part)
    files.replace(name, b"".join(parts))
    compaction.relocate(found.machine, segment, list(moved.values()))


def _lost(found: Salvage, queue_id: int, batch: Batch) -> bytes:
    kind, parts = codec.encode(
        Lost(
            at_ns=batch.created_ns,
            queue_id=queue_id,
            first=batch.first,
            count=found.stop_of_lost(queue_id, batch.first) - batch.first,
        )
    )
    return record.encode(kind, *parts)
