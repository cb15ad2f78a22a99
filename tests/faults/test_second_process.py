"""One process owns a data directory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.errors import DirectoryLocked
from tests.faults.store import broker_on, open_store

OWNER = """
import asyncio, sys
import penstock

async def main():
    async with penstock.open(sys.argv[1]) as broker:
        await broker.create_queue("orders")
        print("open", flush=True)
        await asyncio.to_thread(sys.stdin.readline)

asyncio.run(main())
"""


@contextmanager
def owner_of(directory: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has the directory open."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield process
        process.communicate("close\n", timeout=30)
    finally:
        process.kill()
        process.wait(30)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


async def test_a_second_process_is_refused_and_told_which_one_has_the_directory(
    tmp_path: Path,
) -> None:
    # Given a process that has the directory open
    with owner_of(tmp_path / "data") as process:
        # When another opens it, it is refused
        with pytest.raises(DirectoryLocked) as refusal:
            await open_store(tmp_path / "data")
        # Then the error names the first, and says what to do
        assert refusal.value.code == "directory_locked"
        assert f"process {process.pid}" in str(refusal.value)
        assert "stop that process, or choose another" in str(refusal.value)


async def test_the_directory_is_free_once_its_process_is_gone(tmp_path: Path) -> None:
    # Given a process that was killed
    with owner_of(tmp_path / "data") as process:
        process.kill()
    # Then another can have the directory
    async with broker_on(tmp_path / "data") as broker:
        assert [stats.name for stats in await broker.stats()] == ["orders"]
