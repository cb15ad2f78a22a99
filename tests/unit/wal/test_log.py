from __future__ import annotations

import errno
import random

import pytest

from penstock.errors import DiskFull, StorageClosed, StorageFailed
from penstock.storage.wal.files import Files
from penstock.storage.wal.log import RECORD_OVERHEAD_BYTES, Log, SyncMode
from penstock.storage.wal.record import MARK_BYTES
from penstock.storage.wal.replay import Replay
from penstock.storage.wal.segment import file_name, segment_numbers, segment_of
from tests.simulation.files import Operation, SimulatedFiles, fail_with
from tests.unit.wal.logs import (
    KIND,
    SEGMENT_BYTES,
    commit,
    damage,
    open_log,
    payloads,
    place,
    read,
)


def test_what_was_committed_is_replayed_in_order(files: Files) -> None:
    # Given a log with three groups
    log = open_log(files)
    positions = commit(log, b"a", b"b") + commit(log, b"c") + commit(log, b"")
    log.close()
    # When it is read again
    entries = [(at, kind, bytes(payload)) for at, kind, payload in Replay(files)]
    # Then every record is where it was said to be
    assert entries == [
        (position, KIND, data)
        for position, data in zip(positions, [b"a", b"b", b"c", b""], strict=True)
    ]


def test_a_payload_may_come_in_parts(files: Files) -> None:
    log = open_log(files)
    position = log.append(9, b"one", b"two", bytes(memoryview(b"three")))
    log.commit()
    assert read(files, position) == b"onetwothree"
    log.close()


def test_a_log_goes_on_where_it_ended(files: Files) -> None:
    for number in range(5):
        log = open_log(files)
        commit(log, b"%d" % number)
        log.close()
    assert payloads(files) == [b"0", b"1", b"2", b"3", b"4"]


def test_opening_and_closing_leaves_no_trace(files: Files) -> None:
    log = open_log(files)
    commit(log, b"a")
    log.close()
    log = open_log(files)
    end = log.end
    for _ in range(5):
        log.close()
        log.close()
        log = open_log(files)
    assert log.end == end
    log.close()


def test_records_go_on_in_further_segments(files: Files) -> None:
    # Given records that fill many segments, in groups that cross their borders
    rng = random.Random(1)
    expected = [rng.randbytes(rng.randint(0, 900)) for _ in range(200)]
    log = open_log(files)
    positions = []
    for start in range(0, 200, 10):
        positions += commit(log, *expected[start : start + 10])
    # Then each is found, positions grow, and segments are no larger than they may be
    assert positions == sorted(positions)
    assert len(segment_numbers(files)) > 20
    assert all(files.size(file_name(n)) <= SEGMENT_BYTES for n in segment_numbers(files))
    assert [read(files, position) for position in positions] == expected
    log.close()
    assert payloads(files) == expected


def test_a_record_larger_than_a_segment_gets_one_of_its_own(files: Files) -> None:
    log = open_log(files)
    large = bytes(range(256)) * 50
    positions = commit(log, b"before", large, b"after")
    assert len({segment_of(position) for position in positions}) == 3
    positions += commit(log, large)
    assert read(files, positions[1]) == large
    assert read(files, positions[3]) == large
    log.close()
    assert payloads(files) == [b"before", large, b"after", large]


def test_a_roll_separates_what_came_before_from_what_follows(files: Files) -> None:
    log = open_log(files)
    before = log.append(KIND, b"before")
    number = log.roll()
    assert log.roll() == number  # nothing was appended since
    after = log.append(KIND, b"after")
    assert segment_of(before) < number == segment_of(after)
    log.commit()
    assert segment_numbers(files) == [number - 1, number]
    log.close()
    assert payloads(files) == [b"before", b"after"]


def test_a_roll_alone_makes_the_segment(files: Files) -> None:
    log = open_log(files)
    commit(log, b"a")
    number = log.roll()
    log.commit()
    assert number in segment_numbers(files)
    log.close()
    assert payloads(files) == [b"a"]


def test_replay_may_begin_at_a_later_segment(files: Files) -> None:
    log = open_log(files)
    commit(log, b"old")
    number = log.roll()
    commit(log, b"new")
    log.close()
    replay = Replay(files, first_segment=number)
    assert [bytes(payload) for _, _, payload in replay] == [b"new"]
    log = Log.open(files, replay=replay, segment_bytes=SEGMENT_BYTES)
    commit(log, b"newer")
    log.close()
    assert payloads(files) == [b"old", b"new", b"newer"]


def test_segments_are_removed_but_never_the_one_in_use(files: Files) -> None:
    log = open_log(files)
    commit(log, b"old")
    first = segment_of(log.end)
    number = log.roll()
    commit(log, b"new")
    log.remove([first])
    log.remove([first])
    with pytest.raises(ValueError, match="in use"):
        log.remove([number])
    assert segment_numbers(files) == [number]
    log.close()
    assert [bytes(payload) for _, _, payload in Replay(files, first_segment=number)] == [b"new"]


@pytest.mark.parametrize("segment_bytes", [0, 1023, 2**32])
def test_a_segment_size_out_of_range_is_refused(files: Files, segment_bytes: int) -> None:
    with pytest.raises(ValueError, match="a segment has"):
        open_log(files, segment_bytes=segment_bytes)


def test_the_size_of_segments_may_change_between_starts(files: Files) -> None:
    expected = []
    for segment_bytes in (4096, 1024, 16384, 2048):
        log = open_log(files, segment_bytes=segment_bytes)
        for number in range(20):
            expected.append(b"%d" % number * 100)
            commit(log, expected[-1])
        log.close()
    assert payloads(files) == expected


# -- the three modes -------------------------------------------------------------------------------


def test_in_mode_always_a_commit_is_durable(simulated: SimulatedFiles) -> None:
    log = open_log(simulated)
    commit(log, b"a", b"b")
    assert log.synced == log.written == log.end
    assert payloads(simulated.crash()) == [b"a", b"b"]


def test_in_mode_interval_a_commit_is_durable_after_the_next_sync(
    simulated: SimulatedFiles,
) -> None:
    log = open_log(simulated, sync_mode=SyncMode.INTERVAL)
    commit(log, b"a")
    assert log.synced < log.written == log.end
    log.sync()
    assert log.synced == log.end
    commit(log, b"b")
    assert payloads(simulated.crash())[:1] == [b"a"]


def test_in_mode_interval_a_finished_segment_is_durable(simulated: SimulatedFiles) -> None:
    log = open_log(simulated, sync_mode=SyncMode.INTERVAL)
    commit(log, b"a")
    log.roll()
    commit(log, b"b")
    assert payloads(simulated.crash())[:1] == [b"a"]


def test_in_mode_never_only_the_birth_of_a_segment_is_synced(simulated: SimulatedFiles) -> None:
    log = open_log(simulated, sync_mode=SyncMode.NEVER)
    synced = []

    def note(operation: Operation) -> None:
        if operation.kind == "sync":
            synced.append(operation.name)

    simulated.fault = note
    commit(log, b"a")
    log.roll()
    commit(log, b"b")
    log.close()
    assert synced == ["spare.log"]
    assert payloads(simulated.kill()) == [b"a", b"b"]


@pytest.mark.parametrize("mode", list(SyncMode))
def test_in_every_mode_what_was_committed_survives_the_death_of_the_process(
    simulated: SimulatedFiles, mode: SyncMode
) -> None:
    log = open_log(simulated, sync_mode=mode)
    expected = [b"%d" % number * 50 for number in range(100)]
    for data in expected:
        commit(log, data)
    log.append(KIND, b"never committed")
    assert payloads(simulated.kill()) == expected


@pytest.mark.parametrize("mode", [SyncMode.ALWAYS, SyncMode.INTERVAL])
def test_a_closed_log_is_durable(simulated: SimulatedFiles, mode: SyncMode) -> None:
    log = open_log(simulated, sync_mode=mode)
    commit(log, b"a")
    log.append(KIND, b"b")
    log.close()
    assert payloads(simulated.crash()) == [b"a", b"b"]


# -- a full disk -----------------------------------------------------------------------------------


def test_there_is_room_for_what_is_left_and_for_the_spare(files: Files) -> None:
    log = open_log(files)
    assert SEGMENT_BYTES - 100 < log.room < SEGMENT_BYTES
    log.close()


def test_whatever_fits_the_room_is_stored_on_a_full_disk(simulated: SimulatedFiles) -> None:
    # Given a disk with space for two segments and no more
    simulated.capacity_bytes = 2 * SEGMENT_BYTES
    rng = random.Random(3)
    log = open_log(simulated)
    stored = 0
    # When records are appended, each in a group of its own, for as long as there is room
    while True:
        data = bytes(rng.randint(0, 700))
        if log.room < len(data) + RECORD_OVERHEAD_BYTES:
            break
        commit(log, data)
        stored += 1
    # Then none of them failed, and the two segments are well filled
    assert log.failure is None
    log.close()
    assert len(payloads(simulated)) == stored
    assert len(segment_numbers(simulated)) == 2


def test_a_batch_that_fits_the_room_is_stored_however_it_falls(
    simulated: SimulatedFiles,
) -> None:
    for filled in range(0, 3500, 250):
        files = SimulatedFiles(random.Random(1), capacity_bytes=2 * SEGMENT_BYTES)
        log = open_log(files)
        commit(log, bytes(filled))
        sizes = [700] * ((log.room) // (700 + RECORD_OVERHEAD_BYTES))
        for size in sizes:
            log.append(KIND, bytes(size))
            log.commit()  # the worst case: every record opens a group
        assert len(payloads(files)) == 1 + len(sizes)


def test_a_full_disk_refuses_the_spare_and_recovers_when_space_is_freed(
    simulated: SimulatedFiles,
) -> None:
    # Given a disk that is full but for the segment in use
    simulated.capacity_bytes = 2 * SEGMENT_BYTES
    log = open_log(simulated)
    commit(log, bytes(3000))
    old = segment_of(log.end)
    log.roll()
    (position,) = commit(log, b"x")
    # Then asking for more is refused with advice, and changes nothing
    with pytest.raises(DiskFull, match="free some"):
        log.reserve()
    room = log.room
    assert 0 < room < SEGMENT_BYTES
    assert log.failure is None
    # And what is stored can be read, and small records still go in
    assert read(simulated, position) == b"x"
    commit(log, b"ack")
    # When a segment is dropped there is room again
    log.remove([old])
    log.prepare()
    assert log.room > room
    commit(log, bytes(3500))
    log.close()


def test_a_large_batch_may_reserve_more_than_a_segment(simulated: SimulatedFiles) -> None:
    simulated.capacity_bytes = 5 * SEGMENT_BYTES
    log = open_log(simulated)
    log.reserve(3 * SEGMENT_BYTES)
    assert log.room >= 3 * SEGMENT_BYTES
    with pytest.raises(DiskFull):
        log.reserve(30 * SEGMENT_BYTES)
    assert log.room >= 3 * SEGMENT_BYTES  # it kept what it had
    commit(log, bytes(3 * SEGMENT_BYTES - 100))
    log.close()


def test_a_disk_without_space_for_the_first_segment_is_reported(
    simulated: SimulatedFiles,
) -> None:
    simulated.capacity_bytes = SEGMENT_BYTES - 1
    with pytest.raises(DiskFull):
        open_log(simulated)


def test_a_log_opens_on_a_full_disk(simulated: SimulatedFiles) -> None:
    # Given a log that was closed, on a disk that has filled up since
    log = open_log(simulated)
    (position,) = commit(log, b"x")
    log.close()
    simulated.capacity_bytes = simulated.used_bytes
    # When it is opened, then it can be read, and says that it has no room
    log = open_log(simulated)
    assert read(simulated, position) == b"x"
    assert log.room == 0
    with pytest.raises(DiskFull):
        log.reserve()
    # And when there is space again, it goes on
    simulated.capacity_bytes = None
    log.reserve()
    commit(log, b"y")
    log.close()
    assert payloads(simulated) == [b"x", b"y"]


def test_a_closed_log_gives_back_the_space_that_it_does_not_use(simulated: SimulatedFiles) -> None:
    log = open_log(simulated)
    commit(log, b"x")
    log.close()
    assert simulated.names() == [file_name(1)]
    assert simulated.size(file_name(1)) < 200
    assert payloads(simulated) == [b"x"]


def test_without_room_a_commit_still_tries_to_get_the_space(simulated: SimulatedFiles) -> None:
    log = open_log(simulated)
    expected = [bytes(3000)] * 10
    for data in expected:
        log.append(KIND, data)
    assert log.room == 0
    log.commit()
    log.close()
    assert payloads(simulated) == expected


# -- failures --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "error"),
    [("write", errno.EIO), ("write", errno.ENOSPC), ("sync", errno.EIO), ("sync", errno.ENOSPC)],
)
def test_a_failed_write_or_sync_is_final(simulated: SimulatedFiles, kind: str, error: int) -> None:
    # Given a log in which something is durable
    log = open_log(simulated)
    (position,) = commit(log, b"safe")
    # When a commit fails once
    simulated.fault = fail_with(error, kind=kind, times=1)
    log.append(KIND, b"lost")
    with pytest.raises(StorageFailed, match="not tried again"):
        log.commit()
    # Then nothing is accepted any more, though the disk would work again
    for action in (log.commit, log.roll, log.sync, log.reserve, lambda: log.append(KIND, b"x")):
        with pytest.raises(StorageFailed):
            action()
    operations = simulated.operations
    log.close()
    assert simulated.operations == operations
    # But what was stored can be read
    assert read(simulated, position) == b"safe"
    assert payloads(simulated.crash())[0] == b"safe"


@pytest.mark.parametrize("kind", ["truncate", "rename", "sync_directory"])
def test_a_failure_to_begin_a_segment_is_final(simulated: SimulatedFiles, kind: str) -> None:
    log = open_log(simulated)
    commit(log, b"safe")
    log.roll()
    log.append(KIND, b"lost")
    simulated.fault = fail_with(errno.EIO, kind=kind, times=1)
    with pytest.raises(StorageFailed):
        log.commit()
    with pytest.raises(StorageFailed):
        log.append(KIND, b"x")
    assert payloads(simulated.crash())[0] == b"safe"


def test_what_a_failed_sync_left_in_the_cache_is_made_durable_at_the_next_start(
    simulated: SimulatedFiles,
) -> None:
    # Given a group whose sync failed, so that the kernel shows it but may never write it
    log = open_log(simulated)
    commit(log, b"safe")
    simulated.fault = fail_with(errno.EIO, kind="sync", times=1)
    log.append(KIND, b"doubtful")
    with pytest.raises(StorageFailed):
        log.commit()
    # When another process starts on it, sees it, and loses the power
    files = simulated.kill()
    assert payloads(files) == [b"safe", b"doubtful"]
    open_log(files)
    # Then it is still what that process saw
    assert payloads(files.crash()) == [b"safe", b"doubtful"]


@pytest.mark.parametrize("seed", range(10))
def test_the_length_of_a_segment_is_made_durable_too_after_a_failed_sync(seed: int) -> None:
    # Given a sealed segment whose length is not durable, and a start that cannot sync it
    simulated = SimulatedFiles(random.Random(seed))
    log = open_log(simulated, sync_mode=SyncMode.NEVER)
    commit(log, b"a")
    log.roll()
    commit(log, b"b")
    files = simulated.kill()
    files.fault = fail_with(errno.EIO, kind="sync", times=1)
    with pytest.raises(StorageFailed):
        open_log(files)
    # When the next start can, and then the power is lost
    files = files.kill()
    open_log(files)
    # Then nothing is, and nothing looks damaged
    assert payloads(files.crash()) == [b"a", b"b"]


@pytest.mark.parametrize("seed", range(10))
def test_a_torn_tail_does_not_reappear_behind_a_new_record(seed: int) -> None:
    # Given a tail whose first record is torn, and a start that cannot make it durable to cut it off
    simulated = SimulatedFiles(random.Random(seed))
    log = open_log(simulated, sync_mode=SyncMode.INTERVAL)
    commit(log, b"safe")
    torn, _ = commit(log, b"torn" * 100, b"stale")
    log.sync()
    files = simulated.kill()
    name, offset = place(torn)
    damage(files, name, offset + 20)
    files.fault = fail_with(errno.EIO, kind="sync", times=1)
    with pytest.raises(StorageFailed):
        open_log(files)
    # When the next start can, stores a group of the same size there, and the power is lost
    files = files.kill()
    log = open_log(files, sync_mode=SyncMode.INTERVAL)
    new = bytes(400 - MARK_BYTES)
    commit(log, new)
    log.sync()
    # Then no other record follows it
    assert payloads(files.crash()) == [b"safe", new]


def test_an_error_other_than_a_full_disk_is_final_for_the_spare_too(
    simulated: SimulatedFiles,
) -> None:
    simulated.fault = fail_with(errno.EIO, kind="allocate", from_nth=2)
    with pytest.raises(StorageFailed):
        open_log(simulated)


def test_a_closed_log_refuses_everything(files: Files) -> None:
    log = open_log(files)
    log.close()
    for action in (log.commit, log.roll, log.sync, log.reserve, lambda: log.append(KIND, b"x")):
        with pytest.raises(StorageClosed):
            action()


def writes_zeros(simulated: SimulatedFiles, log: Log, data: bytes) -> bool:
    """Whether the commit of a record writes something besides, under the same sync."""
    operations = simulated.operations
    commit(log, data)
    written = simulated.operations - operations
    assert written in (2, 3)
    return written == 3


def test_zeros_are_written_ahead_of_the_records_and_change_nothing_that_is_read(
    simulated: SimulatedFiles,
) -> None:
    # Given a new log
    log = open_log(simulated, segment_bytes=2**18)
    # When records come, then the first one has zeros written ahead, and so has one in sixteen
    data = bytes(range(256)) * 16
    zeroed = []
    for count in range(1, 61):
        zeroed.append(writes_zeros(simulated, log, data))
        assert len(payloads(simulated)) == count
    assert zeroed[0]
    assert 2 <= sum(zeroed) <= 4
    # And they end where the segment does
    assert simulated.size(file_name(1)) == 2**18
    # And after a power loss all is there
    assert payloads(simulated.crash()) == [data] * 60


def test_in_the_modes_that_do_not_wait_for_the_disk_no_zeros_are_written(
    simulated: SimulatedFiles,
) -> None:
    log = open_log(simulated, segment_bytes=2**18, sync_mode=SyncMode.INTERVAL)
    operations = simulated.operations
    commit(log, b"a")
    assert simulated.operations == operations + 1


def test_no_zeros_are_written_ahead_of_large_groups_until_small_ones_come_in_a_row(
    simulated: SimulatedFiles,
) -> None:
    # Given a log whose last group was a large one: nothing was written ahead of it
    log = open_log(simulated, segment_bytes=2**20)
    assert not writes_zeros(simulated, log, bytes(2**16))
    # Nor is it when a few small ones follow, for another large one may be next
    for _ in range(7):
        assert not writes_zeros(simulated, log, b"a")
    # When there is one more, then there are zeros for the next
    assert writes_zeros(simulated, log, b"a")
    assert not writes_zeros(simulated, log, b"a")


def test_zeros_that_find_no_space_are_done_without(simulated: SimulatedFiles) -> None:
    log = open_log(simulated, segment_bytes=2**18)
    simulated.fault = fail_with(errno.ENOSPC, kind="write", from_nth=2, times=1)
    commit(log, b"a")
    simulated.fault = None
    assert not writes_zeros(simulated, log, b"b")
    assert payloads(simulated.crash()) == [b"a", b"b"]


def test_zeros_that_cannot_be_written_fail_the_log(simulated: SimulatedFiles) -> None:
    log = open_log(simulated, segment_bytes=2**18)
    simulated.fault = fail_with(errno.EIO, kind="write", from_nth=2)
    with pytest.raises(StorageFailed):
        commit(log, b"a")
    with pytest.raises(StorageFailed):
        log.append(KIND, b"b")
