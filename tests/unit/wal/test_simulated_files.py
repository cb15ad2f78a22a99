"""The simulated disk must be as cruel as a real one, or the tests on it prove nothing."""

from __future__ import annotations

import errno
import random

import pytest

from tests.simulation.files import SECTOR_BYTES, SimulatedCrash, SimulatedFiles, crash_at, fail_with


def disks(count: int = 300) -> list[SimulatedFiles]:
    return [SimulatedFiles(random.Random(seed)) for seed in range(count)]


def test_what_was_synced_always_survives() -> None:
    for files in disks():
        file = files.create("a")
        file.write_at(0, [b"kept"], sync=True)
        files.sync_directory()
        file.write_at(10, [b"perhaps"])
        assert files.crash().read("a")[:4] == b"kept"


def test_an_unsynced_write_may_be_kept_lost_torn_or_have_holes() -> None:
    outcomes = set()
    for files in disks():
        file = files.create("a")
        file.allocate(4 * SECTOR_BYTES)
        file.sync()
        files.sync_directory()
        file.write_at(0, [b"x" * 4 * SECTOR_BYTES])
        data = files.crash().read("a")
        outcomes.add("".join("x" if data[at] else "-" for at in range(0, len(data), SECTOR_BYTES)))
    assert {"xxxx", "----", "xx--", "--xx", "x-x-"} <= outcomes


def test_unsynced_writes_may_be_reordered() -> None:
    outcomes = set()
    for files in disks():
        file = files.create("a")
        file.allocate(2)
        file.sync()
        files.sync_directory()
        file.write_at(0, [b"1"])
        file.write_at(1, [b"2"])
        outcomes.add(files.crash().read("a"))
    assert outcomes == {b"12", b"1\0", b"\x002", b"\0\0"}


def test_unsynced_names_are_kept_or_lost_in_order() -> None:
    outcomes = set()
    for files in disks():
        files.create("a")
        files.sync_directory()
        files.rename("a", "b")
        files.create("c")
        files.remove("b")
        outcomes.add(tuple(files.crash().names()))
    assert outcomes == {("a",), ("b",), ("b", "c"), ("c",)}


def test_content_without_a_durable_name_is_lost_with_it() -> None:
    outcomes = set()
    for files in disks(50):
        files.create("a").write_at(0, [b"synced"], sync=True)
        outcomes.add(tuple(files.crash().names()))
    assert outcomes == {(), ("a",)}


def test_the_death_of_the_process_loses_nothing_and_makes_nothing_durable() -> None:
    lost = 0
    for files in disks(50):
        files.create("a").write_at(0, [b"written"])
        survivor = files.kill()
        assert survivor.read("a") == b"written"
        after = survivor.crash()
        lost += "a" not in after.names() or after.read("a") != b"written"
    assert lost > 10


def test_after_a_failed_sync_another_sync_does_not_help() -> None:
    lost = 0
    for files in disks(50):
        file = files.create("a")
        files.sync_directory()
        file.write_at(0, [b"doubtful"])
        files.fault = fail_with(errno.EIO, kind="sync", times=1)
        with pytest.raises(OSError, match="Input/output"):
            file.sync()
        file.sync()
        assert files.read("a") == b"doubtful"
        lost += files.crash().read("a") != b"doubtful"
    assert lost > 10


def test_a_machine_that_stopped_does_nothing_more() -> None:
    files = SimulatedFiles(random.Random(1))
    file = files.create("a")
    files.fault = crash_at(2)
    with pytest.raises(SimulatedCrash):
        file.write_at(0, [b"x"])
    files.fault = None
    with pytest.raises(SimulatedCrash):
        file.sync()


def test_a_disk_has_only_so_much_space() -> None:
    files = SimulatedFiles(random.Random(1), capacity_bytes=100)
    file = files.create("a")
    file.allocate(90)
    file.write_at(0, [bytes(90)])
    with pytest.raises(OSError, match="No space"):
        file.allocate(101)
    with pytest.raises(OSError, match="No space"):
        file.write_at(90, [bytes(11)])
    files.remove("a")
    files.create("b").allocate(100)
