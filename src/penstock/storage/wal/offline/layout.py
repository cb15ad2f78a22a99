"""Which files of a directory make up the log, and what they hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from penstock.errors import CorruptLog
from penstock.storage.wal.checkpoint import (
    Checkpoint,
    checkpoint_name,
    index_name,
    load_checkpoint,
    load_index,
    numbers_of,
)
from penstock.storage.wal.compaction import pack_names
from penstock.storage.wal.files import Files
from penstock.storage.wal.offline.damage import Damage, Found, Gap, Walk
from penstock.storage.wal.record import find_marks
from penstock.storage.wal.replay import FIRST_SEGMENT
from penstock.storage.wal.segment import (
    HEADER_BYTES,
    file_name,
    offset_of,
    position_of,
    read_header,
    segment_numbers,
)

__all__ = [
    "Layout",
    "Loaded",
    "LogFile",
    "Progress",
    "index_damage",
    "load",
    "read_layout",
    "tell_nobody",
]

_PROGRESS_BYTES = 2**20

Progress = Callable[[str, int], None]
"""Called with the name of a file and how many of its bytes were read since the last call."""

# Where a header has the segment's number and salt, for headers whose CRC does not match.
_NUMBER = slice(10, 18)
_SALT = slice(26, 34)


@dataclass(frozen=True, kw_only=True)
class LogFile:
    """A segment, or the pack that replaced it. Those before the checkpoint are sealed."""

    segment: int
    name: str
    is_sealed: bool
    is_pack: bool
    bytes: int | None  # None if the file is missing


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A file of the log that was read. Iterate ``items`` once; then ``walk`` knows its end."""

    name: str
    walk: Walk
    data: bytes
    salt: bytes
    damage: Damage | None  # of its header

    def items(self, progress: Progress) -> Iterator[Found | Gap]:
        told = 0
        for item in self.walk:
            at = item[0]
            if at - told >= _PROGRESS_BYTES:
                progress(self.name, at - told)
                told = at
            yield item
        progress(self.name, len(self.data) - told)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The files that are needed, in log order.

    ``checkpoint`` is the newest that can be read; unreadable ones are in ``damages``.
    """

    checkpoint: Checkpoint | None
    logs: list[LogFile]
    damages: list[Damage] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        return sum(log.bytes or 0 for log in self.logs)


def read_layout(files: Files) -> Layout:
    """Raises `NewerFormat`."""
    damages: list[Damage] = []
    checkpoint: Checkpoint | None = None
    for number in reversed(numbers_of(files, "ckpt")):
        try:
            checkpoint = load_checkpoint(files, number)
            break
        except CorruptLog:
            name = checkpoint_name(number)
            problem = "the checkpoint is damaged: no start is possible without it"
            damages.append(Damage(file=name, offset=0, bytes=files.size(name), problem=problem))
    names = set(files.names())
    logs: list[LogFile] = []
    first = FIRST_SEGMENT
    if checkpoint is not None:
        first = checkpoint.segment
        for segment in checkpoint.segments:
            pack = checkpoint.packs.get(segment)
            logs.append(_log_file(files, names, segment, pack, is_sealed=True))
    packs = {} if checkpoint is not None else _packs(names)
    numbers = [n for n in (*segment_numbers(files), *packs) if n >= first]
    last = max(numbers, default=first if checkpoint is not None else first - 1)
    if checkpoint is None and numbers:
        first = min(numbers)  # earlier ones may have been removed regularly
    for segment in range(first, last + 1):
        pack = None if file_name(segment) in names else packs.get(segment)
        logs.append(_log_file(files, names, segment, pack, is_sealed=False))
    is_partial = logs and (logs[0].segment > FIRST_SEGMENT or any(log.is_pack for log in logs))
    if checkpoint is None and is_partial and not damages:
        problem = "there is no checkpoint, and without one the log is not complete"
        damages.append(Damage(file=logs[0].name, offset=0, bytes=0, problem=problem))
    return Layout(checkpoint=checkpoint, logs=logs, damages=damages)


def _packs(names: set[str]) -> dict[int, str]:
    """The newest pack of each segment."""
    return {int(name[:16], 16): name for name in pack_names(sorted(names))}


def _log_file(
    files: Files, names: set[str], segment: int, pack: str | None, *, is_sealed: bool
) -> LogFile:
    name = pack or file_name(segment)
    return LogFile(
        segment=segment,
        name=name,
        is_sealed=is_sealed,
        is_pack=pack is not None,
        bytes=files.size(name) if name in names else None,
    )


def load(files: Files, log: LogFile, later: list[LogFile]) -> Loaded | None:
    """None if the file is missing, or is another segment's. Raises `NewerFormat`."""
    if log.bytes is None:
        return None
    try:
        data = files.read(log.name)
    except FileNotFoundError:  # removed meanwhile: a process has the directory open
        return None
    damage = None
    try:
        salt = read_header(data, number=log.segment).salt
    except CorruptLog:
        if _is_another(data):
            return None
        salt = data[_SALT] or bytes(8)
        problem = "the header of the segment is damaged: the file has to be written anew"
        damage = Damage(file=log.name, offset=0, bytes=HEADER_BYTES, problem=problem)
    if log.is_sealed or log.is_pack:
        promised = [position_of(log.segment, len(data))]
    else:
        promised = _promised(files, later)
    index = load_index(files, log.segment, salt)
    hints: list[int] = []
    if index is not None:
        for part in index.parts.values():
            hints += map(offset_of, memoryview(part.locators).cast("Q"))
    walk = Walk(data, segment=log.segment, salt=salt, promised=promised, hints=hints)
    return Loaded(name=log.name, walk=walk, data=data, salt=salt, damage=damage)


def tell_nobody(name: str, count: int) -> None:
    """A `Progress` that does nothing."""


def index_damage(files: Files, log: LogFile) -> Damage | None:
    """The damage to a sealed file's index, if it has one that cannot be read. It loses no data."""
    name = index_name(log.segment)
    # An index of another file is stale, not damaged: a pack was made, or not completed.
    if name not in files.names() or load_index(files, log.segment, None) is not None:
        return None
    problem = "the index is damaged: every start has to read the whole segment instead"
    return Damage(file=name, offset=0, bytes=files.size(name), problem=problem)


def _is_another(data: bytes) -> bool:
    stated = int.from_bytes(data[_NUMBER], "little")
    with suppress(CorruptLog):
        read_header(data, number=stated)
        return True
    return False


def _promised(files: Files, later: list[LogFile]) -> list[int]:
    """The positions that later segments state as durable."""
    promised: list[int] = []
    for log in later:
        if log.bytes is None or log.is_pack:
            continue
        header = files.read_at(log.name, 0, HEADER_BYTES)
        try:
            promised.append(read_header(header, number=log.segment).synced)
        except CorruptLog:
            data = files.read(log.name)
            promised += find_marks(data, HEADER_BYTES, data[_SALT] or bytes(8))
    return promised
