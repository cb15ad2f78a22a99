"""Short words for the tests of the log."""

from __future__ import annotations

from penstock.storage.wal import record
from penstock.storage.wal.files import Files
from penstock.storage.wal.log import Log, SyncMode
from penstock.storage.wal.replay import Replay
from penstock.storage.wal.segment import file_name, offset_of, segment_of

SEGMENT_BYTES = 4096
KIND = 7


def open_log(
    files: Files, *, segment_bytes: int = SEGMENT_BYTES, sync_mode: SyncMode = SyncMode.ALWAYS
) -> Log:
    return Log.open(files, replay=Replay(files), segment_bytes=segment_bytes, sync_mode=sync_mode)


def payloads(files: Files) -> list[bytes]:
    """What a start would find, in order."""
    return [bytes(payload) for _, _, payload in Replay(files)]


def read(files: Files, position: int) -> bytes:
    """The payload of the record at a position."""
    name, offset = place(position)
    found = record.decode(memoryview(files.read(name)), offset)
    assert isinstance(found, record.Record)
    return bytes(found.payload)


def commit(log: Log, *records: bytes) -> list[int]:
    """Append and commit records as one group, as the committer does."""
    positions = [log.append(KIND, data) for data in records]
    log.commit()
    log.prepare()
    return positions


def place(position: int) -> tuple[str, int]:
    """The file and the offset of a position."""
    return file_name(segment_of(position)), offset_of(position)


def damage(files: Files, name: str, offset: int, bit: int = 0) -> None:
    """Flip one bit."""
    byte = files.read_at(name, offset, 1)[0] ^ 1 << bit
    file = files.open(name)
    file.write_at(offset, [bytes([byte])], sync=True)
    file.close()
