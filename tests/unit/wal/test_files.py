from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import DirectoryLocked
from penstock.storage.wal.files import DiskFiles, Files


def fill(files: Files, name: str, data: bytes) -> None:
    file = files.create(name)
    file.write_at(0, [data], sync=True)
    file.close()


def test_buffers_are_written_one_after_the_other(files: Files) -> None:
    file = files.create("a")
    file.write_at(0, [b"one", b"", b"two"])
    file.write_at(6, [b"three"], sync=True)
    assert files.read("a") == b"onetwothree"
    assert files.size("a") == 11
    file.close()
    file.close()


def test_more_buffers_than_the_kernel_takes_at_once_are_written(files: Files) -> None:
    buffers = [b"%05d" % number for number in range(5000)]
    file = files.create("a")
    file.write_at(0, buffers, sync=True)
    file.write_at(25_000, buffers)
    file.close()
    assert files.read("a") == b"".join(buffers) * 2


@pytest.mark.parametrize("sync", [False, True])
def test_a_write_that_the_kernel_cuts_short_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync: bool
) -> None:
    def write_some(descriptor: int, buffers: list[bytes], offset: int, flags: int = 0) -> int:
        return os.pwrite(descriptor, b"".join(buffers)[:4], offset)

    monkeypatch.setattr(os, "pwritev", write_some)
    files = DiskFiles(tmp_path)
    file = files.create("a")
    file.write_at(2, [b"one", b"two", b"three"], sync=sync)
    file.close()
    assert files.read("a") == b"\0\0onetwothree"


def test_allocated_space_reads_as_zeros_and_keeps_what_was_written(files: Files) -> None:
    file = files.create("a")
    file.write_at(0, [b"abc"])
    file.allocate(10)
    file.allocate(5)
    assert files.read("a") == b"abc" + bytes(7)
    file.truncate(2)
    file.allocate(4)
    assert files.read("a") == b"ab\0\0"
    file.close()


def test_a_read_ends_where_the_file_ends(files: Files) -> None:
    fill(files, "a", b"0123456789")
    assert files.read_at("a", 2, 3) == b"234"
    assert files.read_at("a", 8, 100) == b"89"
    assert files.read_at("a", 50, 1) == b""


def test_a_read_that_may_not_wait_is_right_or_none(files: Files) -> None:
    fill(files, "a", bytes(range(256)) * 40)
    for offset in range(0, 10_000, 100):
        assert files.read_at_nowait("a", offset, 64) in (None, files.read_at("a", offset, 64))
    assert files.read_at_nowait("a", 10_200, 100) is None


def test_what_was_just_written_is_read_without_waiting(tmp_path: Path) -> None:
    files = DiskFiles(tmp_path)
    fill(files, "a", b"0123456789")
    assert files.read_at_nowait("a", 3, 4) in (b"3456", None)  # None where there are no such reads


@pytest.mark.parametrize("error", [errno.EAGAIN, errno.EOPNOTSUPP])
def test_a_read_that_would_wait_or_is_not_supported_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(error, os.strerror(error))

    files = DiskFiles(tmp_path)
    fill(files, "a", b"0123456789")
    monkeypatch.setattr(os, "preadv", refuse)
    assert files.read_at_nowait("a", 3, 4) is None


def test_a_read_error_is_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EIO, "broken")

    files = DiskFiles(tmp_path)
    fill(files, "a", b"0123456789")
    monkeypatch.setattr(os, "preadv", refuse)
    with pytest.raises(OSError, match="broken"):
        files.read_at_nowait("a", 3, 4)


def test_a_name_is_created_once(files: Files) -> None:
    fill(files, "a", b"")
    with pytest.raises(FileExistsError):
        files.create("a")


def test_a_missing_file_is_an_error(files: Files) -> None:
    for action in (files.open, files.read, files.size, files.remove):
        with pytest.raises(FileNotFoundError):
            action("missing")
    with pytest.raises(FileNotFoundError):
        files.read_at("missing", 0, 1)
    with pytest.raises(FileNotFoundError):
        files.rename("missing", "b")


def test_reads_follow_a_name_to_its_new_file(files: Files) -> None:
    fill(files, "a", b"old")
    fill(files, "b", b"new")
    assert files.read_at("a", 0, 3) == b"old"
    files.rename("b", "a")
    assert files.read_at("a", 0, 3) == b"new"
    assert files.names() == ["a"]
    files.remove("a")
    with pytest.raises(FileNotFoundError):
        files.read_at("a", 0, 3)


def test_a_replaced_file_holds_the_new_content_alone(files: Files) -> None:
    fill(files, "a.tmp", b"left by a crash")
    files.replace("a", b"a long first version")
    files.replace("a", b"second")
    assert files.read("a") == b"second"
    assert files.names() == ["a"]


def test_reading_many_files_keeps_few_open(tmp_path: Path) -> None:
    files = DiskFiles(tmp_path)
    for number in range(200):
        fill(files, str(number), b"%d" % number)
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    for number in range(200):
        assert files.read_at(str(number), 0, 10) == b"%d" % number
    if before:
        assert len(os.listdir("/proc/self/fd")) - before <= 64
    files.unlock()
    if before:
        assert len(os.listdir("/proc/self/fd")) == before


def test_the_directory_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    files = DiskFiles(tmp_path / "some" / "where")
    fill(files, "a", b"")
    assert stat.S_IMODE((tmp_path / "some" / "where").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "some" / "where" / "a").stat().st_mode) == 0o600


def test_a_directory_has_one_owner_at_a_time(files: Files) -> None:
    files.lock()
    with pytest.raises(DirectoryLocked):
        (DiskFiles(files.path) if isinstance(files, DiskFiles) else files).lock()
    files.unlock()
    files.lock()
    files.unlock()


def test_a_second_process_is_told_who_owns_the_directory(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from penstock.storage.wal.files import DiskFiles\n"
        "files = DiskFiles(sys.argv[1])\n"
        "files.lock()\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"locked\n"
        with pytest.raises(DirectoryLocked, match=f"process {owner.pid}: stop that process"):
            DiskFiles(tmp_path).lock()
        owner.kill()
    files = DiskFiles(tmp_path)  # the lock ended with its owner
    files.lock()
    files.unlock()
