"""Verifying a directory: every byte of the log, and that every message can be reached."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from penstock.core import events as ev
from penstock.core.machine import Machine
from penstock.core.queue import Queue
from penstock.errors import CorruptLog
from penstock.storage.wal import codec
from penstock.storage.wal.blank import blank_machine
from penstock.storage.wal.compaction import Live, live_batches
from penstock.storage.wal.files import Files
from penstock.storage.wal.offline.damage import DAMAGED, MISSING, UNKNOWN, Damage, Found, Gap
from penstock.storage.wal.offline.layout import (
    LogFile,
    Progress,
    index_damage,
    load,
    read_layout,
    tell_nobody,
)
from penstock.storage.wal.recovery import recover
from penstock.storage.wal.segment import offset_of

__all__ = ["Verification", "total_bytes", "verify"]

ASTRAY = "there should be a record with messages here, and there is not"


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What was found. A torn end is not damage, because it was never acknowledged.

    ``messages`` counts those that can be reached, by queue; empty if recovery fails.
    """

    damages: list[Damage]
    bytes: int
    records: int
    messages: dict[str, int]
    torn_file: str | None
    torn_bytes: int

    @property
    def is_good(self) -> bool:
        return not self.damages


def verify(files: Files, *, progress: Progress | None = None) -> Verification:
    """BLOCKING. Read every byte that a start could need; changes no file. Raises `NewerFormat`.

    If the directory is in use, files may change meanwhile and seem damaged: try again.
    """
    return _Verifier(files, progress or tell_nobody).run()


def total_bytes(files: Files) -> int:
    """How many bytes `verify` will read."""
    return read_layout(files).bytes


class _Verifier:
    def __init__(self, files: Files, progress: Progress) -> None:
        self._files = files
        self._progress = progress
        self._layout = read_layout(files)
        self._damages = list(self._layout.damages)
        self._records = 0
        self._messages: Counter[str] = Counter()
        self._torn: tuple[str | None, int] = (None, 0)

    def run(self) -> Verification:
        machine = self._recover()
        logs = self._layout.logs
        for at, log in enumerate(logs):
            self._check(log, logs[at + 1 :], machine)
            if self._torn[0] is not None:
                break
        name, size = self._torn
        return Verification(
            damages=self._damages,
            bytes=self._layout.bytes,
            records=self._records,
            messages=dict(sorted(self._messages.items())),
            torn_file=name,
            torn_bytes=size,
        )

    def _recover(self) -> Machine:
        """The state that recovery finds; empty if it fails, since the checks will find out why."""
        machine = blank_machine()
        try:
            recover(self._files, machine)
        except (CorruptLog, *codec.UNREADABLE):
            return blank_machine()
        for queue in machine.queues.values():
            self._messages[queue.name] = 0
        return machine

    def _check(self, log: LogFile, later: list[LogFile], machine: Machine) -> None:
        loaded = load(self._files, log, later)
        if loaded is None:
            self._add(log, 0, 0, MISSING)
            return
        if loaded.damage is not None:
            self._damages.append(loaded.damage)
        if log.is_sealed:
            damage = index_damage(self._files, log)
            if damage is not None:
                self._damages.append(damage)
        expected: dict[int, list[Live]] = {}
        for live in live_batches(machine, log.segment):
            expected.setdefault(offset_of(live.batch.locator), []).append(live)
        for item in loaded.items(self._progress):
            if isinstance(item, Gap):
                self._add(log, item.start, item.stop - item.start, DAMAGED)
            else:
                self._records += 1
                self._check_record(log, item, expected.pop(item.offset, []), machine)
        gaps = [(d.offset, d.offset + d.bytes) for d in self._damages if d.file == log.name]
        for offset in expected:
            if not any(start <= offset < stop for start, stop in gaps):
                self._add(log, offset, 0, ASTRAY)
        if loaded.walk.torn_bytes:
            self._torn = log.name, loaded.walk.torn_bytes

    def _check_record(
        self, log: LogFile, item: Found, expected: list[Live], machine: Machine
    ) -> None:
        try:
            event = codec.decode(item.kind, item.payload)
        except codec.UNREADABLE:
            self._add(log, item.offset, item.length, UNKNOWN)
            return
        for live in expected:
            queue = machine.queues_by_id[live.queue_id]
            count = _messages_in(queue, event, live)
            if count is None:
                self._add(log, item.offset, item.length, ASTRAY)
            else:
                self._messages[queue.name] += count

    def _add(self, log: LogFile, offset: int, size: int, problem: str) -> None:
        self._damages.append(Damage(file=log.name, offset=offset, bytes=size, problem=problem))


def _messages_in(queue: Queue, event: ev.Event, live: Live) -> int | None:
    """How many messages of the queue the event holds; None if it is not the expected one."""
    match event:
        case ev.Published() | ev.Lost():
            queue_id, first, stop = event.queue_id, event.first, event.first + event.count
        case ev.DeadLettered():
            queue_id, first = event.dead_letter_queue_id, event.letter_index
            stop = first + 1
        case _:
            return None
    if queue_id != queue.id or first != live.batch.first:
        return None
    if live.straggler is not None:
        return 1 if first <= live.straggler < stop else None
    if (stop < queue.next and queue.timeline.batch(stop).first != stop) or stop > queue.next:
        return None
    if isinstance(event, ev.Lost):
        return 0
    aside = sum(1 for index in queue.stragglers if first <= index < min(stop, queue.first))
    return stop - max(first, queue.first) + aside
