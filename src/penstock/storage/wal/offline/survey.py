"""What is in a directory, for people: each file, and each queue as recovery would find it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from penstock.core.events import Event
from penstock.core.queue import Queue
from penstock.errors import CorruptLog, NewerFormat
from penstock.storage.wal import codec
from penstock.storage.wal.blank import blank_machine
from penstock.storage.wal.checkpoint import checkpoint_name, index_name
from penstock.storage.wal.files import Files
from penstock.storage.wal.offline.damage import DAMAGED, MISSING, Damage, Gap
from penstock.storage.wal.offline.layout import Layout, LogFile, index_damage, load, read_layout
from penstock.storage.wal.recovery import recover

__all__ = ["Condition", "FileReport", "QueueReport", "RecordReport", "Survey", "records", "survey"]


class Condition(Enum):
    """The condition of a file."""

    GOOD = "good"
    TORN = "torn"  # ends in unacknowledged writes, which the next start cuts off
    DAMAGED = "damaged"
    MISSING = "missing"
    UNNEEDED = "not needed"  # the next start or checkpoint removes or rewrites it
    FOREIGN = "not of the log"  # such as the users, and the key of their tokens


@dataclass(frozen=True, kw_only=True)
class FileReport:
    """One file. ``records`` counts the records of a segment or pack, by kind."""

    name: str
    kind: str
    bytes: int
    condition: Condition
    records: dict[str, int]
    damages: list[Damage]


@dataclass(frozen=True, kw_only=True)
class QueueReport:
    """One queue: the messages ``first <= index < next``, and how many of them can be read."""

    name: str
    first: int
    next: int
    messages: int
    bytes: int
    subscriptions: dict[str, int]  # name -> unsettled messages


@dataclass(frozen=True, kw_only=True)
class Survey:
    """``refusal`` is why a start would fail, if so; then there are no queues."""

    checkpoint: int | None
    files: list[FileReport]
    queues: list[QueueReport]
    refusal: str | None


@dataclass(frozen=True, kw_only=True)
class RecordReport:
    """One record. ``event`` has no bodies, and is None if this version does not know its kind."""

    file: str
    offset: int
    length: int
    kind: str
    event: Event | None


def survey(files: Files) -> Survey:
    """BLOCKING. Read the whole log. Changes no file, so a server may have the directory open.

    Then the last files may seem damaged because they are being written: try again.
    """
    layout = read_layout(files)
    queues, refusal = _queues(files)
    return Survey(
        checkpoint=layout.checkpoint.segment if layout.checkpoint else None,
        files=sorted(_files(files, layout), key=lambda report: report.name),
        queues=queues,
        refusal=refusal,
    )


def records(files: Files) -> Iterator[RecordReport]:
    """BLOCKING. Every record that can be read, in log order, without sync marks."""
    logs = read_layout(files).logs
    for at, log in enumerate(logs):
        loaded = load(files, log, logs[at + 1 :])
        for item in loaded.walk if loaded is not None else ():
            if isinstance(item, Gap):
                continue
            try:
                event = codec.decode(item.kind, item.payload)
            except codec.UNREADABLE:
                event = None
            yield RecordReport(
                file=log.name,
                offset=item.offset,
                length=item.length,
                kind=codec.kind_name(item.kind),
                event=event,
            )


def _files(files: Files, layout: Layout) -> Iterator[FileReport]:
    seen: set[str] = set()
    for at, log in enumerate(layout.logs):
        report = _log(files, log, layout.logs[at + 1 :])
        seen.add(report.name)
        yield report
        name = index_name(log.segment)
        if log.is_sealed and name in files.names():
            damage = index_damage(files, log)
            seen.add(name)
            yield _report(files, name, "index", [damage] if damage else [])
    for damage in layout.damages:
        seen.add(damage.file)
        yield _report(files, damage.file, "checkpoint", [damage])
    if layout.checkpoint is not None:
        name = checkpoint_name(layout.checkpoint.segment)
        seen.add(name)
        yield _report(files, name, "checkpoint", [])
    for name in files.names():
        if name not in seen:
            kind = _kind(name)
            conditions = {"spare": Condition.GOOD, "other": Condition.FOREIGN}
            yield FileReport(
                name=name,
                kind=kind,
                bytes=files.size(name),
                condition=conditions.get(kind, Condition.UNNEEDED),
                records={},
                damages=[],
            )


def _kind(name: str) -> str:
    if name == "spare.log":
        return "spare"
    endings = {"log": "segment", "pack": "pack", "idx": "index", "ckpt": "checkpoint"}
    return endings.get(name.rpartition(".")[2], "other")


def _report(files: Files, name: str, kind: str, damages: list[Damage]) -> FileReport:
    return FileReport(
        name=name,
        kind=kind,
        bytes=files.size(name),
        condition=Condition.DAMAGED if damages else Condition.GOOD,
        records={},
        damages=damages,
    )


def _log(files: Files, log: LogFile, later: list[LogFile]) -> FileReport:
    kind = "pack" if log.is_pack else "segment"
    loaded = load(files, log, later)
    if loaded is None:
        return FileReport(
            name=log.name,
            kind=kind,
            bytes=0,
            condition=Condition.MISSING,
            records={},
            damages=[Damage(file=log.name, offset=0, bytes=0, problem=MISSING)],
        )
    damages = [loaded.damage] if loaded.damage else []
    counts: Counter[str] = Counter()
    for item in loaded.walk:
        if isinstance(item, Gap):
            size = item.stop - item.start
            damages.append(Damage(file=log.name, offset=item.start, bytes=size, problem=DAMAGED))
        else:
            counts[codec.kind_name(item.kind)] += 1
    condition = Condition.GOOD
    if damages:
        condition = Condition.DAMAGED
    elif loaded.walk.torn_bytes:
        condition = Condition.TORN
    return FileReport(
        name=log.name,
        kind=kind,
        bytes=len(loaded.data),
        condition=condition,
        records=dict(sorted(counts.items())),
        damages=damages,
    )


def _queues(files: Files) -> tuple[list[QueueReport], str | None]:
    machine = blank_machine()
    try:
        recover(files, machine)
    except (CorruptLog, NewerFormat) as exc:
        return [], str(exc)
    return [_queue(queue) for _, queue in sorted(machine.queues.items())], None


def _queue(queue: Queue) -> QueueReport:
    readable = queue.feeds.everything.matched.count_within(queue.first, queue.next)
    return QueueReport(
        name=queue.name,
        first=queue.first,
        next=queue.next,
        messages=readable + len(queue.stragglers),
        bytes=queue.timeline.bytes_from(queue.first) if queue.first < queue.next else 0,
        subscriptions={s.name: s.unsettled for s in queue.subscriptions.values()},
    )
