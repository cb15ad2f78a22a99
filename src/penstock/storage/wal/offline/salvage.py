"""Everything that can be read of a damaged directory, as a machine.

It starts from the newest readable checkpoint, or from nothing. The segments before the checkpoint
hold the messages of each queue, so an index that is in none of them is lost. The segments after it
hold events. They are applied as in recovery until the first gap; from there on, the rules of
`penstock.storage.wal.offline.gapped` apply.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from penstock.core import events as ev
from penstock.core.machine import Machine, Place
from penstock.core.queue import Queue
from penstock.core.runs import Run, Runs
from penstock.core.snapshot import restore
from penstock.core.timeline import Batch
from penstock.storage.wal import codec
from penstock.storage.wal.blank import blank_machine
from penstock.storage.wal.files import Files
from penstock.storage.wal.offline.damage import CUT, DAMAGED, MISSING, UNKNOWN, Damage, Found, Gap
from penstock.storage.wal.offline.gapped import GappedHistory
from penstock.storage.wal.offline.layout import (
    Layout,
    Loaded,
    LogFile,
    Progress,
    load,
    read_layout,
    tell_nobody,
)
from penstock.storage.wal.replay import FIRST_SEGMENT
from penstock.storage.wal.segment import HEADER_BYTES, position_of

__all__ = ["Salvage", "SalvagedFile", "salvage"]

_ANY_NUMBER = 2**32 - 1


@dataclass(frozen=True, kw_only=True)
class SalvagedFile:
    """A file of the log. Its good records end at ``end``; ``is_good`` if it can stay as it is."""

    log: LogFile
    salt: bytes
    end: int
    is_good: bool
    is_cut_off: bool  # the log ends in here; what follows was never acknowledged


class _Room:
    """Unused positions from ``next`` on, in a gap or after the end of a file.

    A file that was cut off between two records has no visible gap. It turns out to be damaged only
    if something after its end is missing; ``unproven`` is the damage to report then.
    """

    __slots__ = ("next", "stop", "unproven")

    def __init__(self, start: int, stop: int, unproven: Damage | None = None) -> None:
        self.next = start
        self.stop = stop
        self.unproven = unproven


class Salvage:
    """What was salvaged. Made by `salvage`.

    A lost range is a batch of length 0 in its queue's timeline; `stop_of_lost` is where it ends.
    """

    def __init__(self, machine: Machine, layout: Layout) -> None:
        self.machine = machine
        self.layout = layout
        self.damages: list[Damage] = list(layout.damages)
        self.files: dict[int, SalvagedFile] = {}  # by segment
        self.history = GappedHistory(machine, self._lose)
        self.is_gapped = False
        self.lost: dict[str, list[Run]] = {}  # index ranges that cannot be read, by queue
        self._holes: dict[tuple[int, int], int] = {}  # queue id and first index -> end
        self._rooms: list[_Room] = []
        self._misfits: set[int] = set()  # segments with messages that could not be used

    def stop_of_lost(self, queue_id: int, first: int) -> int:
        return self._holes[queue_id, first]

    # Messages before the checkpoint.

    def read_sealed(self, files: Files, progress: Progress) -> None:
        checkpoint = self.layout.checkpoint
        if checkpoint is None:
            return
        stragglers = restore(self.machine, checkpoint.machine)
        known = {queue.id: queue.first for queue in self.machine.queues.values()}
        logs = [log for log in self.layout.logs if log.is_sealed]
        for log in logs:
            for item in self._read(files, log, [], progress):
                if isinstance(item, Found):
                    self._locate(log, item, known, stragglers)
        for queue in self.machine.queues.values():
            self._hole(queue, known[queue.id], queue.next, self.machine.now_ns)
            for index in stragglers[queue.id]:
                if index not in queue.stragglers:
                    place = self._place(queue)
                    queue.stragglers[index] = Batch(index, self.machine.now_ns, place, 0)
                    self._holes[queue.id, index] = index + 1
            queue.timeline.trim(queue.first, queue.next)

    def _locate(
        self, log: LogFile, item: Found, known: dict[int, int], stragglers: dict[int, list[int]]
    ) -> None:
        event = self._decode(log, item)
        if isinstance(event, ev.Published | ev.Lost):
            queue_id, first, count = event.queue_id, event.first, event.count
        elif isinstance(event, ev.DeadLettered):
            queue_id, first, count = event.dead_letter_queue_id, event.letter_index, 1
        else:
            return
        queue = self.machine.queues_by_id.get(queue_id)
        if queue is None:
            return
        stop = first + count
        batch = Batch(first, event.at_ns, position_of(log.segment, item.offset), item.length)
        if first < queue.first and not isinstance(event, ev.Lost):
            for index in stragglers[queue_id]:
                if first <= index < stop:
                    queue.stragglers[index] = batch
        if stop > known[queue_id]:
            self._hole(queue, known[queue_id], first, event.at_ns)
            size = event.size if isinstance(event, ev.Published) else 0
            queue.timeline.append(first, event.at_ns, size, batch.locator, batch.length)
            known[queue_id] = stop

    def _hole(self, queue: Queue, first: int, stop: int, at_ns: int) -> None:
        if first < stop:
            queue.timeline.append(first, at_ns, 0, self._place(queue), 0)
            self._holes[queue.id, first] = stop

    # Events.

    def read_tail(self, files: Files, progress: Progress) -> None:
        logs = [log for log in self.layout.logs if not log.is_sealed]
        if self.layout.checkpoint is None and logs and logs[0].segment > FIRST_SEGMENT:
            self.is_gapped = True
            self._add_gap(logs[0].segment - 1, Gap(HEADER_BYTES, _ANY_NUMBER))
        for at, log in enumerate(logs):
            for item in self._read(files, log, logs[at + 1 :], progress):
                if isinstance(item, Gap):
                    self.is_gapped = True
                    continue
                event = self._decode(log, item)
                if event is None:
                    self.is_gapped = True
                    continue
                place = Place(position_of(log.segment, item.offset), item.length)
                if self.is_gapped:
                    is_used = self.history.apply(event, place)
                    if not is_used and isinstance(event, ev.Published | ev.DeadLettered):
                        self._misfits.add(log.segment)
                else:
                    self.machine.apply(event, place)
            found = self.files.get(log.segment)
            if found is not None and found.is_cut_off:
                break

    def finish(self) -> None:
        holes = [
            (self.machine.queues_by_id[queue_id], first, stop)
            for (queue_id, first), stop in self._holes.items()
            if queue_id in self.machine.queues_by_id
        ]
        for queue, first, stop in holes:
            self._give_back(queue, first, stop)
        lost: dict[str, Runs] = {}
        for queue, first, stop in holes:
            runs = lost.setdefault(queue.name, Runs())
            runs.add(max(first, queue.first), stop)
            for index in queue.stragglers:
                if first <= index < stop:
                    runs.add(index, index + 1)
            queue.lose(first, stop)
        self.lost = {name: list(runs) for name, runs in sorted(lost.items()) if runs}
        if self.is_gapped:
            self.history.finish()

    def _give_back(self, letters: Queue, first: int, stop: int) -> None:
        """Replay dead letters whose records are lost: their messages are not."""
        reader = letters.default
        if letters.source is None or reader is None:
            return
        gone = [i for run in reader.unsettled_within(first, stop) for i in range(*run)]
        if gone:
            event = ev.Replayed(
                at_ns=self.machine.now_ns, dead_letter_queue_id=letters.id, letter_indexes=gone
            )
            self.machine.apply(event)

    def _lose(self, queue: Queue, stop: int) -> None:
        first = queue.next
        if first < stop:
            queue.append_lost(first, stop, self.machine.now_ns, self._place(queue), 0)
            self._holes[queue.id, first] = stop

    # Files.

    def _read(
        self, files: Files, log: LogFile, later: list[LogFile], progress: Progress
    ) -> Iterator[Found | Gap]:
        loaded = load(files, log, later)
        if loaded is None:
            gap = Gap(HEADER_BYTES, _ANY_NUMBER)
            self._add_damage(log.name, Gap(0, 0), MISSING)
            self._add_gap(log.segment, gap)
            yield gap
            return
        is_good = loaded.damage is None
        if loaded.damage is not None:
            self.damages.append(loaded.damage)
        for item in self._items(log, loaded, progress):
            is_good = is_good and not isinstance(item, Gap)
            yield item
        size, walk = len(loaded.data), loaded.walk
        if log.is_sealed:
            cut = Damage(file=log.name, offset=size, bytes=0, problem=CUT)
            ends = position_of(log.segment, size), position_of(log.segment, _ANY_NUMBER)
            self._rooms.append(_Room(*ends, unproven=cut))
        self.files[log.segment] = SalvagedFile(
            log=log,
            salt=loaded.salt,
            end=walk.end,
            is_good=is_good and not walk.torn_bytes and log.segment not in self._misfits,
            is_cut_off=walk.end < size,
        )

    def _items(self, log: LogFile, loaded: Loaded, progress: Progress) -> Iterator[Found | Gap]:
        # A pack has messages only, so without a checkpoint there is a gap on each side.
        is_partial = log.is_pack and not log.is_sealed
        if is_partial:
            yield self._add_gap(log.segment, Gap(0, HEADER_BYTES))
        for item in loaded.items(progress):
            if isinstance(item, Gap):
                self._add_damage(log.name, item, DAMAGED)
                self._add_gap(log.segment, item)
            yield item
        if is_partial:
            yield self._add_gap(log.segment, Gap(len(loaded.data), _ANY_NUMBER))

    def _decode(self, log: LogFile, item: Found) -> ev.Event | None:
        try:
            return codec.decode(item.kind, item.payload)
        except codec.UNREADABLE:
            gap = Gap(item.offset, item.offset + item.length)
            self._add_damage(log.name, gap, UNKNOWN)
            self._add_gap(log.segment, gap)
            return None

    def _add_damage(self, name: str, gap: Gap, problem: str) -> None:
        size = gap.stop - gap.start
        self.damages.append(Damage(file=name, offset=gap.start, bytes=size, problem=problem))

    def _add_gap(self, segment: int, gap: Gap) -> Gap:
        start, stop = position_of(segment, gap.start), position_of(segment, gap.stop)
        self._rooms.append(_Room(start, stop))
        return gap

    def _place(self, queue: Queue) -> int:
        """A unique position for a lost range, in a gap after everything the queue has so far."""
        try:
            after = queue.timeline.batch(queue.next).locator
        except IndexError:  # it is empty so far
            after = 0
        rooms = [room for room in self._rooms if after < room.next < room.stop]
        if not rooms:
            return after + 1  # inside the record before it, where no other record can begin
        room = next((r for r in rooms if r.unproven is None), rooms[0])
        if room.unproven is not None:
            self.damages.append(room.unproven)
            room.unproven = None
        room.next += 1
        return room.next - 1


def salvage(files: Files, *, rng: Random, progress: Progress | None = None) -> Salvage:
    """BLOCKING. Read everything; changes no file. Raises `NewerFormat`."""
    found = Salvage(blank_machine(rng), read_layout(files))
    found.read_sealed(files, progress or tell_nobody)
    found.read_tail(files, progress or tell_nobody)
    found.finish()
    return found
