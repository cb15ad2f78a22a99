from __future__ import annotations

import random

import pytest
from crc32c import crc32c

from penstock.errors import CorruptLog, NewerFormat
from penstock.storage.wal.files import Files
from penstock.storage.wal.log import SyncMode
from penstock.storage.wal.record import HEADER_BYTES as RECORD_HEADER_BYTES
from penstock.storage.wal.record import MARK_BYTES, encode, encode_mark
from penstock.storage.wal.replay import Replay
from penstock.storage.wal.segment import HEADER_BYTES, file_name, offset_of, segment_numbers
from tests.simulation.files import SimulatedCrash, SimulatedFiles, crash_at
from tests.unit.wal.logs import KIND, commit, damage, open_log, payloads, place

GROUPS = [[b"a" * 100, b"b" * 100], [b"c" * 100, b"d" * 100], [b"e" * 100, b"f" * 100]]
ALL = [data for group in GROUPS for data in group]


def three_groups(files: Files, *, close: bool = False) -> list[int]:
    """A log of three groups, closed in order or (by default) left as a crash leaves it."""
    log = open_log(files)
    positions = [position for group in GROUPS for position in commit(log, *group)]
    if close:
        log.close()
    return positions


def write_at(files: Files, name: str, offset: int, data: bytes) -> None:
    file = files.open(name)
    file.write_at(offset, [data], sync=True)
    file.close()


# -- a torn tail -----------------------------------------------------------------------------------


def test_a_record_cut_in_the_last_group_is_a_torn_tail(files: Files) -> None:
    # Given a last group of which the end never reached the disk
    positions = three_groups(files)
    name, offset = place(positions[-1])
    write_at(files, name, offset + 50, bytes(59))
    # When the log is read, then what comes before is there, and the tail is known to be torn
    replay = Replay(files)
    assert [bytes(payload) for _, _, payload in replay] == ALL[:-1]
    assert replay.torn_bytes > 0
    assert replay.end == positions[-1]
    # And once it is opened, the tail is gone and the log goes on there
    log = open_log(files)
    commit(log, b"new")
    log.close()
    assert payloads(files) == [*ALL[:-1], b"new"]


def test_good_records_behind_a_torn_one_go_with_it(files: Files) -> None:
    # Given unsynced writes that reached the disk in another order: the first of the group is bad
    positions = three_groups(files)
    damage(files, *place(positions[4]))
    # Then the second is not kept either
    log = open_log(files)
    assert payloads(files) == ALL[:4]
    # And does not come back when a new group ends just where it began
    (new,) = commit(log, b"g" * (100 - MARK_BYTES))
    assert log.end == positions[5] > new
    log.close()
    assert payloads(files) == [*ALL[:4], b"g" * (100 - MARK_BYTES)]


def test_zeros_in_place_of_the_last_group_are_the_end(files: Files) -> None:
    positions = three_groups(files)
    name, offset = place(positions[4])
    write_at(files, name, offset - 25, bytes(400))
    replay = Replay(files)
    assert len(list(replay)) == 4
    assert replay.torn_bytes == 0


def test_a_file_that_ends_within_the_last_group_is_a_torn_tail(files: Files) -> None:
    positions = three_groups(files)
    name, offset = place(positions[-1])
    for size in (offset + 100, offset + 5, offset):
        file = files.open(name)
        file.truncate(size)
        file.close()
        assert payloads(files) == ALL[:-1]
    log = open_log(files)
    commit(log, b"new")
    log.close()
    assert payloads(files)[-1] == b"new"


def test_in_mode_never_a_tear_may_take_whole_segments_with_it(simulated: SimulatedFiles) -> None:
    # Given segments of which none but the birth was synced, and damage in an early one
    log = open_log(simulated, sync_mode=SyncMode.NEVER)
    positions = [position for n in range(100) for position in commit(log, b"%d" % n * 100)]
    damage(simulated, *place(positions[10]))
    files = simulated.kill()
    # When it is opened, then everything from there on is gone, and the log goes on
    replay = Replay(files)
    assert len(list(replay)) == 10
    assert replay.torn_segments == segment_numbers(files)[1:]
    log = open_log(files)
    commit(log, b"new")
    log.close()
    assert payloads(files) == [b"%d" % n * 100 for n in range(10)] + [b"new"]


def test_a_crash_while_the_tail_is_cut_off_is_harmless() -> None:
    def torn() -> SimulatedFiles:
        files = SimulatedFiles(random.Random(5))
        log = open_log(files, sync_mode=SyncMode.NEVER)
        positions = [position for n in range(40) for position in commit(log, b"%d" % n * 300)]
        damage(files, *place(positions[10]))
        return files.kill()

    expected = payloads(torn())
    number = 0
    while True:
        number += 1
        files = torn()
        files.fault = crash_at(number)
        try:
            open_log(files)
        except SimulatedCrash:
            # Unsynced names come back: a segment that was to go may still be there.
            after = files.crash()
            assert payloads(after)[:10] in (expected, payloads(after))
            open_log(after)
        else:
            break
    assert number > 5


# -- corruption ------------------------------------------------------------------------------------


def test_damage_in_a_group_that_was_synced_is_corruption(files: Files) -> None:
    positions = three_groups(files)
    for position in positions[:4]:
        name, offset = place(position)
        for at in (offset, offset + 4, offset + 8, offset + RECORD_HEADER_BYTES + 50):
            damage(files, name, at, bit=3)
            with pytest.raises(CorruptLog) as caught:
                payloads(files)
            assert (caught.value.file, caught.value.offset) == (name, offset)
            assert "repair" in str(caught.value)
            damage(files, name, at, bit=3)
    assert payloads(files) == ALL


def test_zeros_in_place_of_a_group_that_was_synced_are_corruption(files: Files) -> None:
    positions = three_groups(files)
    name, offset = place(positions[2])
    write_at(files, name, offset, bytes(109))
    with pytest.raises(CorruptLog) as caught:
        payloads(files)
    assert caught.value.offset == offset


def test_after_an_orderly_stop_damage_to_any_byte_is_corruption(files: Files) -> None:
    # Given a log that was closed
    positions = three_groups(files, close=True)
    name, last = place(positions[-1])
    end = last + RECORD_HEADER_BYTES + 100
    # Then a flipped bit anywhere, even in the last group, is found out
    for at in range(end):
        damage(files, name, at, bit=at % 8)
        with pytest.raises(CorruptLog):
            payloads(files)
        damage(files, name, at, bit=at % 8)
    # And only the closing mark itself may be lost without loss
    damage(files, name, end + 3)
    assert payloads(files) == ALL


def test_damage_in_an_earlier_segment_is_corruption(files: Files) -> None:
    log = open_log(files)
    positions = [position for n in range(60) for position in commit(log, b"%02d" % n * 100)]
    last = segment_numbers(files)[-1]
    for position in positions:
        name, offset = place(position)
        if name == file_name(last):
            break
        damage(files, name, offset + 20)
        with pytest.raises(CorruptLog) as caught:
            payloads(files)
        assert (caught.value.file, caught.value.offset) == (name, offset)
        damage(files, name, offset + 20)
    log.close()


def test_a_damaged_header_is_corruption_even_of_the_last_segment(files: Files) -> None:
    three_groups(files)
    (number,) = segment_numbers(files)
    for at in range(HEADER_BYTES):
        damage(files, file_name(number), at)
        with pytest.raises(CorruptLog) as caught:
            open_log(files)
        assert (caught.value.file, caught.value.offset) == (file_name(number), 0)
        damage(files, file_name(number), at)


def test_an_earlier_segment_that_lost_its_end_is_corruption(files: Files) -> None:
    # Given a segment cut exactly between two records, with another one after it
    log = open_log(files)
    positions = commit(log, b"a" * 100, b"b" * 100)
    log.roll()
    commit(log, b"c")
    log.close()
    name, offset = place(positions[1])
    file = files.open(name)
    file.truncate(offset)
    file.close()
    # Then the next header tells that there was more
    with pytest.raises(CorruptLog) as caught:
        payloads(files)
    assert (caught.value.file, caught.value.offset) == (name, offset)


def test_a_missing_segment_is_corruption_that_names_the_file(files: Files) -> None:
    log = open_log(files)
    for data in (b"a", b"b", b"c"):
        commit(log, data)
        log.roll()
    log.commit()
    log.close()
    first, second, *_ = segment_numbers(files)
    files.remove(file_name(second))
    with pytest.raises(CorruptLog, match=f"{file_name(second)} is missing") as caught:
        payloads(files)
    assert caught.value.file == file_name(second)
    files.remove(file_name(first))
    with pytest.raises(CorruptLog, match=f"{file_name(first)} is missing"):
        payloads(files)


def test_a_log_is_not_begun_anew_where_one_must_have_been(files: Files) -> None:
    with pytest.raises(CorruptLog, match=f"{file_name(4)} is missing"):
        list(Replay(files, first_segment=4))
    with pytest.raises(CorruptLog, match=f"{file_name(1)} is missing"):
        list(Replay(files, synced=1 << 32 | 100))


def test_damage_below_a_position_that_the_caller_knows_to_be_synced_is_corruption(
    files: Files,
) -> None:
    positions = three_groups(files)
    damage(files, *place(positions[-1]))
    assert len(list(Replay(files, synced=positions[-1]))) == 5
    with pytest.raises(CorruptLog) as caught:
        list(Replay(files, synced=positions[-1] + 1))
    assert caught.value.offset == offset_of(positions[-1])


def test_a_position_known_to_be_synced_in_a_later_segment_does_not_confuse(files: Files) -> None:
    log = open_log(files)
    for data in (b"a", b"b", b"c"):
        commit(log, data)
        log.roll()
    log.commit()
    assert len(list(Replay(files, synced=log.end))) == 3
    with pytest.raises(CorruptLog):
        list(Replay(files, synced=log.end + 1))
    log.close()


def test_a_newer_version_is_refused_and_left_alone(files: Files) -> None:
    three_groups(files, close=True)
    (number,) = segment_numbers(files)
    header = bytearray(files.read_at(file_name(number), 0, HEADER_BYTES))
    header[8] += 1
    header[-4:] = crc32c(header[:-4]).to_bytes(4, "little")
    write_at(files, file_name(number), 0, bytes(header))
    before = files.read(file_name(number))
    with pytest.raises(NewerFormat, match=r"version 3.*up to version 2"):
        open_log(files)
    assert files.read(file_name(number)) == before


def test_a_message_that_looks_like_a_mark_proves_nothing(files: Files) -> None:
    # Given a torn group behind which a client's message, shaped like a mark, has survived
    log = open_log(files)
    commit(log, b"safe")
    forged = encode_mark(b"PENSTOCK", 2**63) + encode_mark(bytes(8), 2**63)
    positions = commit(log, b"torn" * 50, forged, encode(KIND, forged))
    damage(files, *place(positions[0]))
    # Then it is not taken for a proof of corruption
    assert payloads(files) == [b"safe"]
    log = open_log(files)
    log.close()
