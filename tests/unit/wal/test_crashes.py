"""Random histories of one log: append, commit, crash, start again."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from penstock.errors import CorruptLog, StorageFailed
from penstock.storage.wal.log import Log, SyncMode
from penstock.storage.wal.record import HEADER_BYTES, MARK_BYTES
from penstock.storage.wal.replay import Replay
from penstock.storage.wal.segment import file_name, segment_numbers
from tests.simulation.files import SimulatedCrash, SimulatedFiles, crash_at, fail_with
from tests.unit.wal.logs import KIND, open_log, payloads

SEEDS = 150


@contextmanager
def telling(seed: int) -> Iterator[None]:
    """Name the seed with which a failure comes back."""
    try:
        yield
    except (AssertionError, CorruptLog) as exc:
        raise AssertionError(f"seed {seed}: {exc}") from exc


class History:
    """What was appended, and how much of it must be there after a crash."""

    def __init__(self, seed: int, sync_mode: SyncMode) -> None:
        self.rng = random.Random(seed)
        self.sync_mode = sync_mode
        self.files = SimulatedFiles(self.rng)
        self.appended: list[bytes] = []
        self.promised = 0
        self._count = 0

    def open(self) -> Log:
        log = Log.open(
            self.files,
            replay=Replay(self.files),
            segment_bytes=1024,
            sync_mode=self.sync_mode,
            random_bytes=self.rng.randbytes,
        )
        self.promised = len(self.appended)  # a start makes durable what it has seen
        return log

    def work(self, log: Log) -> None:
        for _ in range(self.rng.randint(1, 12)):
            for _ in range(self.rng.randint(0, 6)):
                self._append(log)
            if self.rng.random() < 0.1:
                log.roll()
            log.commit()
            if self.sync_mode is SyncMode.INTERVAL and self.rng.random() < 0.4:
                log.sync()
            if self.sync_mode is SyncMode.ALWAYS or log.synced == log.end:
                self.promised = len(self.appended)
            log.prepare()
        if self.rng.random() < 0.3:
            log.close()
            if self.sync_mode is not SyncMode.NEVER:
                self.promised = len(self.appended)

    def restart(self) -> None:
        """Lose the power, or only the process; then all that was promised must be there, in order,
        and nothing that never was.
        """
        is_power_lost = self.rng.random() < 0.7
        self.files = self.files.crash() if is_power_lost else self.files.kill()
        found = payloads(self.files)
        assert found == self.appended[: len(found)]
        assert len(found) >= self.promised
        self.appended = found
        if is_power_lost:
            self.promised = len(found)  # it was on the disk, then

    def _append(self, log: Log) -> None:
        # Every record is as long as some number of marks, so that what is written over a torn tail
        # often ends just where an older record begins: it must not come back.
        marks = self.rng.randint(1, self.rng.choice([1, 4, 20, 60]))
        self._count += 1
        size = marks * MARK_BYTES - HEADER_BYTES
        data = b"%08d" % self._count + self.rng.randbytes(size - 8)
        log.append(KIND, data)
        self.appended.append(data)


@pytest.mark.parametrize("sync_mode", list(SyncMode))
def test_a_crash_at_any_operation_loses_nothing_that_was_promised(sync_mode: SyncMode) -> None:
    for seed in range(SEEDS):
        history = History(seed, sync_mode)
        with telling(seed):
            for _ in range(6):
                history.files.fault = crash_at(history.rng.randint(1, 60))
                with suppress(SimulatedCrash):
                    history.work(history.open())
                history.restart()


def test_a_failed_operation_and_then_a_crash_lose_nothing_that_was_promised() -> None:
    for seed in range(SEEDS):
        history = History(seed, SyncMode.ALWAYS)
        with telling(seed):
            for _ in range(6):
                log = history.open()
                kind = history.rng.choice(["sync", "write", "truncate", "rename", "sync_directory"])
                nth = history.rng.randint(1, 15)
                history.files.fault = fail_with(errno.EIO, kind=kind, from_nth=nth, times=1)
                try:
                    history.work(log)
                except StorageFailed:
                    with pytest.raises(StorageFailed):
                        log.append(KIND, b"x")
                history.restart()


def test_after_an_orderly_stop_no_flipped_bit_goes_unnoticed() -> None:
    for seed in range(SEEDS):
        history = History(seed, SyncMode.ALWAYS)
        log = history.open()
        history.work(log)
        log.close()
        end = log.written
        numbers = segment_numbers(history.files)
        number = history.rng.choice(numbers)
        size = end & 0xFFFFFFFF if number == numbers[-1] else history.files.size(file_name(number))
        history.files.flip(file_name(number), history.rng.randrange(size), history.rng.randrange(8))
        with pytest.raises(CorruptLog, match=file_name(number)):
            payloads(history.files)


def test_a_flipped_bit_at_any_time_never_invents_or_reorders_records() -> None:
    noticed = 0
    for seed in range(SEEDS):
        history = History(seed, SyncMode.ALWAYS)
        history.work(history.open())
        number = history.rng.choice(segment_numbers(history.files))
        size = history.files.size(file_name(number))
        history.files.flip(file_name(number), history.rng.randrange(size), history.rng.randrange(8))
        try:
            found = payloads(history.files)
        except CorruptLog:
            noticed += 1
        else:
            assert found == history.appended[: len(found)], f"seed {seed}"
    assert noticed > SEEDS // 4


def test_the_simulated_disk_forgets_what_was_not_synced() -> None:
    outcomes = set()
    for seed in range(50):
        files = SimulatedFiles(random.Random(seed))
        log = open_log(files, sync_mode=SyncMode.NEVER)
        for number in range(5):
            log.append(KIND, b"%d" % number * 600)
            log.commit()
        outcomes.add(len(payloads(files.crash())))
    assert {0, 1, 2} <= outcomes


def test_what_was_synced_on_demand_survives_also_in_segments_that_had_ended() -> None:
    for seed in range(50):
        # Given a log that syncs nothing by itself, and a few segments of it
        files = SimulatedFiles(random.Random(seed))
        log = open_log(files, sync_mode=SyncMode.NEVER, segment_bytes=1024)
        expected = [b"%d" % number * 600 for number in range(5)]
        for payload in expected:
            log.append(KIND, payload)
            log.commit()
        # When it is synced, and more is written
        log.sync()
        log.append(KIND, b"later")
        log.commit()
        # Then a power loss takes nothing from before that
        assert payloads(files.crash())[:5] == expected, f"seed {seed}"
