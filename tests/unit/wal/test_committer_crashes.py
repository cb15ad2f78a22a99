"""The committer that the server runs, over a disk that is photographed at every operation.

Each image is one that a power loss at that moment could leave. Whoever was answered by then must
find what he wrote; and what a start makes of the image is a log that goes on.
"""

from __future__ import annotations

import asyncio
import errno
import random
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest

from penstock.errors import CorruptLog, DiskFull, StorageFailed
from penstock.storage.wal import tail
from penstock.storage.wal.committer import GroupCommitter
from penstock.storage.wal.log import Log, SyncMode
from penstock.storage.wal.replay import Replay
from tests.simulation.files import Fault, Operation, SimulatedFiles, fail_with
from tests.unit.wal.logs import KIND, payloads

SEEDS = 12
SEGMENT_BYTES = 2048
TASKS = 5


@pytest.fixture(autouse=True)
def _eager_threads() -> Iterator[None]:
    """So that loop and thread take turns in the middle of everything."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


@pytest.fixture(autouse=True)
def _few_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a segment is zeroed in many steps, with records in between."""
    monkeypatch.setattr(tail, "_FEWEST_ZEROS", 200)
    monkeypatch.setattr(tail, "_MOST_ZEROS", 700)


class Witness:
    """Takes an image before every operation, on whichever thread makes it."""

    def __init__(self, files: SimulatedFiles, sync_mode: SyncMode) -> None:
        self.files = files
        self.sync_mode = sync_mode
        self.appended: list[bytes] = []
        self.promised = 0  # how many of them, from the first on
        self.fault: Fault | None = None
        self.problems: list[str] = []
        files.fault = self

    def __call__(self, operation: Operation) -> None:
        promised = self.promised  # before the image: what is answered later may be missing
        self.look(self.files.crash(), f"{operation}", promised)
        self.files.is_down = False
        if self.fault is not None:
            self.fault(operation)

    def look(self, image: SimulatedFiles, moment: str, promised: int) -> None:
        try:
            found = payloads(image)
            if found != self.appended[: len(found)]:
                self.problems.append(f"{moment}: there are others than were appended")
            elif len(found) < promised and self.sync_mode is SyncMode.ALWAYS:
                self.problems.append(f"{moment}: {len(found)} are there of {promised}")
            elif image.rng.random() < 0.2:
                self.go_on(image, found)
        except CorruptLog as exc:
            self.problems.append(f"{moment}: {exc}")

    def go_on(self, image: SimulatedFiles, found: list[bytes]) -> None:
        log = Log.open(image, replay=Replay(image), segment_bytes=SEGMENT_BYTES)
        log.append(KIND, b"after")
        log.commit()
        log.prepare()
        assert payloads(image.crash()) == [*found, b"after"]


async def write(log: Log, committer: GroupCommitter, witness: Witness, rng: random.Random) -> None:
    """A task that appends and waits, in its own rhythm."""
    for _ in range(rng.randint(3, 12)):
        for _ in range(rng.randint(1, 4)):
            data = b"%d/" % len(witness.appended) + rng.randbytes(rng.choice([5, 40, 300]))
            witness.appended.append(data)  # first: the thread may commit it at once
            log.append(KIND, data)
        if rng.random() < 0.05:
            log.roll()
        count = len(witness.appended)
        await committer.submit()
        witness.promised = max(witness.promised, count)
        for _ in range(rng.choice([0, 0, 1, 3])):
            await asyncio.sleep(0)


async def look_after(log: Log, committer: GroupCommitter, rng: random.Random) -> None:
    """What checkpoints do, in between."""
    for _ in range(4):
        await asyncio.sleep(0)
        await committer.call(log.reserve)
        if rng.random() < 0.5:
            log.roll()
        await committer.call(lambda: log.remove(()))


async def run(seed: int, sync_mode: SyncMode, fault: Fault | None = None) -> Witness:
    rng = random.Random(seed)
    files = SimulatedFiles(rng)
    log = Log.open(
        files,
        replay=Replay(files),
        segment_bytes=SEGMENT_BYTES,
        sync_mode=sync_mode,
        random_bytes=rng.randbytes,
    )
    witness = Witness(files, sync_mode)
    witness.fault = fault
    committer = GroupCommitter(
        log,
        inline_bytes=rng.choice([0, 300, 2**20]),
        sync_interval_seconds=rng.choice([0, 0.0005]),
    )
    tasks = [write(log, committer, witness, random.Random(rng.random())) for _ in range(TASKS)]
    tasks.append(look_after(log, committer, random.Random(rng.random())))
    async with asyncio.timeout(20):  # or somebody is left waiting
        results = await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(StorageFailed):  # the very last operations may fail as well
            await committer.stop()
    expected = () if fault is None else (StorageFailed, DiskFull)
    assert [r for r in results if r is not None and not isinstance(r, expected)] == []
    files.fault = None
    witness.look(files.crash(), "at the end", witness.promised)
    if log.failure is None and sync_mode is not SyncMode.NEVER:
        assert payloads(files.crash()) == witness.appended
    return witness


@pytest.mark.parametrize("sync_mode", list(SyncMode))
async def test_every_answered_record_is_in_every_image(sync_mode: SyncMode) -> None:
    for seed in range(SEEDS):
        witness = await run(seed, sync_mode)
        assert witness.problems == [], f"seed {seed}"
        assert witness.promised == len(witness.appended)


@pytest.mark.parametrize("kind", ["write", "sync", "truncate", "rename", "sync_directory"])
async def test_a_failure_at_any_time_leaves_nobody_waiting_and_takes_nothing_back(
    kind: str,
) -> None:
    for seed in range(SEEDS):
        nth = random.Random(seed).randint(1, 12)
        fault = fail_with(errno.EIO, kind=kind, from_nth=nth, times=1)
        witness = await run(seed, SyncMode.ALWAYS, fault)
        assert witness.problems == [], f"seed {seed}"
