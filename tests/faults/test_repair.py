"""What a repair does with each kind of damage."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from random import Random

import pytest

from penstock.core.settling import Outcome
from penstock.storage.wal.files import DiskFiles
from penstock.storage.wal.offline.repair import Repair, plan_repair
from penstock.storage.wal.offline.verify import verify
from tests.faults.damage import flip, record_offsets
from tests.faults.drain import drain
from tests.faults.files import FaultyFiles, no_fault, stop_at
from tests.faults.store import Clock, History, broker_on, make_history

PUBLISHED = 30
ASIDE = "damaged"


def repair(path: Path) -> Repair:
    plan = plan_repair(DiskFiles(path), rng=Random(1))
    assert plan.is_needed
    plan.apply(DiskFiles(path), directory=ASIDE, random_bytes=Random(3).randbytes)
    assert verify(DiskFiles(path)).is_good
    return plan


def old_segment(path: Path) -> Path:
    """One that holds messages and that no start replays."""
    return segments(path)[-3]


def segments(path: Path) -> list[Path]:
    return sorted(path.glob("0*.log"))


def lose_definitions(path: Path) -> None:
    """Damage the checkpoint, of a log whose first segment was packed."""
    flip(tail(path).with_suffix(".ckpt"), 200)
    for pack in path.glob("*.pack"):
        pack.with_name(f"{pack.name[:16]}.log").unlink()


def contents_of(path: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in path.iterdir() if p.is_file()}


def tail(path: Path) -> Path:
    """The segment that a start replays."""
    [checkpoint] = path.glob("*.ckpt")
    return checkpoint.with_suffix(".log")


def lose_messages(path: Path, segment: Path) -> None:
    """Damage a record with messages, in the middle of a segment."""
    published = [offset for offset, kind in record_offsets(segment) if kind == PUBLISHED]
    flip(segment, published[len(published) // 2] + 50)


@pytest.fixture
async def history(tmp_path: Path) -> History:
    return await make_history(tmp_path / "data", closed=False)


@pytest.fixture
def path(tmp_path: Path, history: History) -> Path:
    return tmp_path / "data"


async def test_a_directory_without_damage_needs_no_repair(path: Path) -> None:
    plan = plan_repair(DiskFiles(path), rng=Random(1))
    assert not plan.is_needed
    assert plan.lost == {}


async def test_a_lost_message_is_passed_over_by_everybody(path: Path, history: History) -> None:
    # Given a directory that was repaired, and lost two messages
    lose_messages(path, old_segment(path))
    plan = repair(path)
    [(start, stop)] = plan.lost["orders"]
    assert stop - start == 2
    assert not plan.is_gapped
    clock = Clock()
    clock.advance(10**7)
    async with broker_on(path, clock=clock) as broker:
        everything = await broker.read("orders", 0, 1000)
        # Then a reader of the queue gets all the others
        indexes = [m.index for m in everything]
        assert indexes == [i for i in range(90) if not start <= i < stop]
        assert [m.body for m in everything] == [history.bodies["orders"][i] for i in indexes]
        # and so does a subscription, also when it is sought back
        await broker.seek("orders", 0, "billing")
        got: list[int] = []
        while deliveries := await broker.receive("orders", subscription="billing", limit=20):
            got += [d.index for d in deliveries]
            await broker.ack("orders", [d.receipt for d in deliveries], "billing")
        assert sorted(got) == indexes
        # and those that wait for it
        assert await broker.held("orders", "mail", 100) == []
        # and its counts come out at nothing
        [billing] = [
            s for s in (await broker.queue_stats("orders")).subscriptions if s.name == "billing"
        ]
        assert (billing.ready, billing.in_flight, billing.held) == (0, 0, 0)
        assert billing.lowest_unacked_index == 90


async def test_a_message_published_after_a_loss_gets_a_new_index(path: Path) -> None:
    lose_messages(path, tail(path))
    repair(path)
    async with broker_on(path) as broker:
        [published] = await broker.publish("orders", [b"new"])
        assert published.index == 90
        assert [m.body for m in await broker.read("orders", 90, 1)] == [b"new"]


async def test_without_a_gap_in_the_events_no_ack_is_forgotten(
    path: Path, history: History
) -> None:
    lose_messages(path, old_segment(path))
    plan = repair(path)
    assert not plan.is_gapped
    contents = await drain(path)
    for reader, acked in history.acked.items():
        assert not acked & contents.bodies.get(reader, {}).keys()


async def test_behind_a_gap_in_the_events_all_that_is_not_known_to_be_acked_comes_again(
    path: Path, history: History
) -> None:
    # Given a tail that lost an event which is no message
    events = [offset for offset, kind in record_offsets(tail(path)) if kind != PUBLISHED]
    flip(tail(path), events[len(events) // 2] + 10)
    plan = repair(path)
    assert plan.is_gapped
    assert plan.lost == {}
    # Then nothing is missing
    contents = await drain(path)
    assert [*contents.readable["orders"].values()] == history.bodies["orders"]
    done = history.acked["orders", "billing"]
    assert contents.bodies["orders", "billing"].keys() == set(range(90)) - done


async def test_receipts_from_before_a_gap_settle_nothing(path: Path) -> None:
    # Given messages that are in flight, and then an event is lost
    async with broker_on(path) as broker:
        deliveries = await broker.receive("orders", subscription="billing", limit=3)
        receipts = [d.receipt for d in deliveries]
        await broker.publish("orders", [b"more"])
        copy = path.with_name("copy")
        shutil.copytree(path, copy)
    flip(tail(copy), record_offsets(tail(copy))[-2][0] + 10)
    assert repair(copy).is_gapped
    # When they are delivered again, to somebody else
    async with broker_on(copy) as broker:
        again = await broker.receive("orders", subscription="billing", limit=3)
        assert [d.index for d in again] == [d.index for d in deliveries]
        # Then the old receipts are worth nothing
        outcomes = await broker.ack("orders", receipts, "billing")
        assert outcomes == [Outcome.NOT_LEASED] * 3


async def test_how_often_a_message_was_delivered_survives_a_gap(path: Path) -> None:
    async with broker_on(path) as broker:
        [delivery] = await broker.receive("orders", subscription="mail")
        await broker.nack("orders", [delivery.receipt], "mail", delay_seconds=0)
        [delivery] = await broker.receive("orders", subscription="mail")
        assert delivery.deliveries == 2
        await broker.publish("orders", [b"more"])
        await broker.publish("orders", [b"and more"])
        copy = path.with_name("copy")
        shutil.copytree(path, copy)
    flip(tail(copy), record_offsets(tail(copy))[-2][0] + 12)
    assert repair(copy).is_gapped
    async with broker_on(copy) as broker:
        [again] = await broker.receive("orders", subscription="mail")
        assert (again.index, again.deliveries) == (delivery.index, 3)


async def test_the_letter_of_a_lost_message_is_lost_with_it(path: Path) -> None:
    # Given dead letters, and the segments with their messages damaged
    async with broker_on(path) as broker:
        letters = await broker.dead_letters("orders")
    assert letters
    origins = {letter.dead_letter.index for letter in letters if letter.dead_letter}
    for segment in segments(path)[:-1]:
        for offset, kind in record_offsets(segment):
            if kind == PUBLISHED:
                flip(segment, offset + 40)
    # When all of these are lost
    plan = repair(path)
    lost = {i for run in plan.lost["orders"] for i in range(*run)}
    assert origins <= lost
    # Then there are no letters of them
    async with broker_on(path) as broker:
        assert await broker.dead_letters("orders") == []
        assert (await broker.queue_stats("orders")).dead_letters == 0
        assert await broker.replay("orders") == 0


async def test_a_damaged_checkpoint_loses_nothing_while_the_whole_log_is_there(
    tmp_path: Path,
) -> None:
    # Given a directory whose segments are all still there
    path = tmp_path / "small"
    async with broker_on(path) as broker:
        await broker.create_queue("orders", max_messages=7)
        await broker.create_subscription("orders", "billing")
        await broker.publish("orders", [b"a", b"b", b"c"])
        [delivery] = await broker.receive("orders")
        await broker.ack("orders", [delivery.receipt])
    # When its checkpoint is damaged
    flip(tail(path).with_suffix(".ckpt"), 200)
    plan = repair(path)
    # Then everything is as it was
    assert (plan.is_gapped, plan.lost) == (False, {})
    async with broker_on(path) as broker:
        stats = await broker.queue_stats("orders")
        assert stats.config.max_messages == 7
        assert [d.index for d in await broker.receive("orders", limit=9)] == [1, 2]
        billing = await broker.receive("orders", subscription="billing", limit=9)
        assert [d.body for d in billing] == [b"a", b"b", b"c"]


async def test_messages_of_a_queue_whose_name_is_lost_are_in_a_recovered_queue(
    path: Path, history: History
) -> None:
    # Given a directory that has lost its checkpoint, and the definitions long before
    lose_definitions(path)
    plan = repair(path)
    assert not plan.has_checkpoint
    # Then its messages can be had under a new name, each once more
    contents = await drain(path)
    recovered = [name for name in contents.bounds if name.startswith("recovered-")]
    letters = {f"{name}-dlq" for name in recovered}.intersection(recovered)
    assert letters
    recovered = [name for name in recovered if name not in letters]
    bodies = [body for name in recovered for body in contents.readable[name].values()]
    assert set(history.bodies["orders"]) <= set(bodies)
    # but for those that the rest of the log says are settled
    settled = history.acked["orders", "default"] | history.acked["brief", "default"]
    for name in recovered:
        missing = contents.readable[name].keys() - contents.bodies[name, "default"].keys()
        assert missing <= settled | contents.dead.get((name, "default"), set())


async def test_a_missing_segment_loses_its_messages_and_no_others(
    path: Path, history: History
) -> None:
    old_segment(path).unlink()
    plan = repair(path)
    lost = {i for run in plan.lost["orders"] for i in range(*run)}
    contents = await drain(path)
    assert contents.readable["orders"] == {
        i: body for i, body in enumerate(history.bodies["orders"]) if i not in lost
    }
    assert 0 < len(lost) < 60


async def test_a_damaged_index_is_written_anew(path: Path) -> None:
    index = old_segment(path).with_suffix(".idx")
    flip(index, 40)
    plan = repair(path)
    assert [d.file for d in plan.damages] == [index.name]
    assert (plan.lost, plan.is_gapped) == ({}, False)


async def test_nothing_is_deleted(path: Path) -> None:
    # Given what was in the directory before a repair
    lose_messages(path, tail(path))
    flip(old_segment(path).with_suffix(".idx"), 40)
    before = contents_of(path)
    # When it is repaired
    plan = repair(path)
    # Then every byte of it is in place or aside
    aside, after = contents_of(path / ASIDE), contents_of(path)
    assert aside.keys() == set(plan.aside)
    for name, data in before.items():
        assert aside.get(name, after.get(name)) == data, name


async def test_a_second_repair_finds_nothing_to_do(path: Path) -> None:
    lose_messages(path, tail(path))
    repair(path)
    assert not plan_repair(DiskFiles(path), rng=Random(1)).is_needed


async def test_a_repair_that_is_cut_short_anywhere_can_be_repeated(
    path: Path, tmp_path: Path
) -> None:
    # Given a damaged directory, and what a repair of it keeps
    lose_messages(path, tail(path))
    lose_messages(path, old_segment(path))
    whole = tmp_path / "whole"
    shutil.copytree(path, whole)
    lost = repair(whole).lost
    truth = await drain(whole)
    for number in range(1, 1000):
        copy = tmp_path / f"copy-{number}"
        shutil.copytree(path, copy)
        # When it stops at any of its operations
        files = FaultyFiles(copy)
        plan = plan_repair(files, rng=Random(1))
        files.fault = stop_at(number)
        try:
            plan.apply(files, directory=ASIDE, random_bytes=Random(3).randbytes)
        except OSError:
            files.fault = no_fault
        else:
            break
        # Then the next repair keeps the same, or it was done already
        plan = plan_repair(DiskFiles(copy), rng=Random(1))
        if plan.is_needed:
            assert plan.lost == lost
            plan.apply(DiskFiles(copy), directory="again", random_bytes=Random(4).randbytes)
        assert verify(DiskFiles(copy)).is_good
        contents = await drain(copy)
        assert contents.readable == truth.readable
        assert contents.bodies == truth.bodies
        await asyncio.to_thread(shutil.rmtree, copy)
    assert number > 10
