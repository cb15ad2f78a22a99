"""A bit that flips, anywhere, is noticed before it can do harm."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import CorruptLog
from penstock.storage.wal.files import DiskFiles
from penstock.storage.wal.offline.verify import verify
from penstock.storage.wal.segment import file_number
from tests.faults.damage import copy_of, flip, record_offsets
from tests.faults.store import History, broker_on, make_history

# Of each file: its first bytes, which are its header, some within, and its last.
PLACES = [0.0, 0.002, 0.006, 0.1, 0.3, 0.55, 0.8, 1.0]


async def read_all(path: Path) -> dict[str, list[bytes]]:
    async with broker_on(path) as broker:
        return {
            queue.name: [m.body for m in await broker.read(queue.name, 0, 1000)]
            for queue in await broker.stats()
        }


async def outcome(path: Path) -> dict[str, list[bytes]] | CorruptLog:
    try:
        return await read_all(path)
    except CorruptLog as error:
        return error


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "killed"])
async def test_a_flipped_bit_never_changes_what_is_read(tmp_path: Path, closed: bool) -> None:
    # Given a directory with every kind of file
    await make_history(tmp_path / "data", closed=closed)
    with copy_of(tmp_path / "data") as copy:
        truth = await read_all(copy)
    names = sorted(p.name for p in (tmp_path / "data").iterdir() if p.name != "LOCK")
    assert {n.rpartition(".")[2] for n in names} == {"log", "idx", "ckpt", "pack"}
    newest = max(n for n in names if file_number(n) is not None)
    for name in names:
        end = (tmp_path / "data" / name).stat().st_size
        if name == newest and closed:
            end = 38  # nothing but a header; zeros follow
        for place in PLACES:
            with copy_of(tmp_path / "data") as copy:
                # When one bit of one of them flips
                offset = round(place * (end - 1))
                flip(copy / name, offset, bit=offset % 8)
                found = await outcome(copy)
            # Then everything reads as before, or an error names the file
            if isinstance(found, CorruptLog):
                assert found.code == "corrupt_log"
                assert found.file == name
                assert "penstock wal repair" in str(found)
                assert "restore the file from a backup" in str(found)
            else:
                assert found == truth, (name, offset)


async def killed(tmp_path: Path) -> tuple[Path, History]:
    history = await make_history(tmp_path / "data", closed=False)
    return tmp_path / "data", history


def checkpoint_of(path: Path) -> Path:
    [checkpoint] = path.glob("*.ckpt")
    return checkpoint


def tail_of(path: Path) -> Path:
    """The segment that a start replays."""
    return checkpoint_of(path).with_suffix(".log")


async def test_a_damaged_checkpoint_is_refused_at_start(tmp_path: Path) -> None:
    path, _ = await killed(tmp_path)
    checkpoint = checkpoint_of(path)
    flip(checkpoint, 100)
    with pytest.raises(CorruptLog) as error:
        await read_all(path)
    assert error.value.file == checkpoint.name


async def test_a_damaged_index_is_made_again_from_its_segment(tmp_path: Path) -> None:
    path, history = await killed(tmp_path)
    for index in path.glob("*.idx"):
        flip(index, index.stat().st_size // 2)
    assert (await read_all(path))["orders"] == history.bodies["orders"]


async def test_a_damaged_record_that_a_start_replays_is_refused_with_its_offset(
    tmp_path: Path,
) -> None:
    path, _ = await killed(tmp_path)
    tail = tail_of(path)
    offsets = [offset for offset, _ in record_offsets(tail)]
    for offset in (offsets[0], offsets[len(offsets) // 2], offsets[-1]):
        with copy_of(path) as copy:
            flip(copy / tail.name, offset + 12)
            with pytest.raises(CorruptLog) as error:
                await read_all(copy)
        assert (error.value.file, error.value.offset) == (tail.name, offset)


async def test_a_damaged_header_is_refused_at_start(tmp_path: Path) -> None:
    path, _ = await killed(tmp_path)
    for segment in (tail_of(path), sorted(path.glob("0*.log"))[1]):
        with copy_of(path) as copy:
            flip(copy / segment.name, 20)
            with pytest.raises(CorruptLog) as error:
                await read_all(copy)
        assert (error.value.file, error.value.offset) == (segment.name, 0)


async def test_a_damaged_old_message_is_refused_when_it_is_read_and_the_others_are_not(
    tmp_path: Path,
) -> None:
    # Given a message of an old segment that is damaged
    path, history = await killed(tmp_path)
    segment = sorted(path.glob("0*.log"))[1]
    published = [offset for offset, kind in record_offsets(segment) if kind == 30]
    offset = published[len(published) // 2]
    flip(segment, offset + 60)
    async with broker_on(path) as broker:
        readable = []
        errors = []
        for index in range(90):
            try:
                readable += [m.body for m in await broker.read("orders", index, 1)]
            except CorruptLog as error:
                errors.append(error)
    # Then reading it fails, and names the place
    assert {(error.file, error.offset) for error in errors} == {(segment.name, offset)}
    # and all the others can be read
    assert len(readable) == 90 - len(errors)
    assert set(readable) <= set(history.bodies["orders"])


async def test_verify_finds_every_damage_with_its_file_and_offset(tmp_path: Path) -> None:
    path, _ = await killed(tmp_path)
    assert verify(DiskFiles(path)).is_good
    # Given several damages at once
    tail, checkpoint = tail_of(path), checkpoint_of(path)
    old = sorted(path.glob("0*.log"))[1]
    index = old.with_suffix(".idx")
    places = {
        (tail.name, record_offsets(tail)[3][0]),
        (tail.name, record_offsets(tail)[9][0]),
        (old.name, record_offsets(old)[2][0]),
    }
    for name, offset in places:
        flip(path / name, offset + 12)
    flip(index, 30)
    found = verify(DiskFiles(path))
    assert {(d.file, d.offset) for d in found.damages} == places | {(index.name, 0)}
    # and when the checkpoint is damaged too, it says so
    flip(checkpoint, 30)
    found = verify(DiskFiles(path))
    assert checkpoint.name in {d.file for d in found.damages}
