"""Random damage to random histories: a repair keeps all that can be read, and says what cannot."""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random

import pytest

from penstock.storage.wal.files import DiskFiles
from penstock.storage.wal.offline.repair import Repair, plan_repair
from penstock.storage.wal.offline.verify import verify
from tests.faults.drain import Contents, drain
from tests.faults.random_history import QUEUES, RandomHistory, make_random_history
from tests.faults.store import broker_on

SEEDS = int(os.environ.get("PENSTOCK_DAMAGE_SEEDS", "25"))
PARENTS = {("groups", "second"): ["first"], ("groups", "third"): ["first", "default"]}


def do_damage(path: Path, rng: Random) -> set[str]:
    """To one file or a few. Returns their names."""
    names = sorted(p.name for p in path.iterdir() if p.suffix and p.name != "spare.log")
    damaged = set()
    for name in rng.sample(names, min(len(names), rng.choice([1, 1, 1, 2, 3]))):
        data = bytearray((path / name).read_bytes())
        at = rng.randrange(len(data))
        size = len(data[at : at + 512])
        kind = rng.choice(["bit", "bit", "bit", "zeros", "noise", "cut", "remove"])
        if kind == "bit":
            data[at] ^= 1 << rng.randrange(8)
        elif kind == "zeros":
            data[at : at + size] = bytes(size)
        elif kind == "noise":
            data[at : at + size] = rng.randbytes(size)
        elif kind == "cut":
            del data[at:]
        (path / name).write_bytes(data)
        if kind == "remove":
            (path / name).unlink()
        damaged.add(name)
    return damaged


def is_even(body: bytes) -> bool:
    return bool(json.loads(body)["kind"] == "even")


def lost_indexes(plan: Repair, queue: str) -> set[int]:
    return {index for run in plan.lost.get(queue, []) for index in range(*run)}


def check_messages(history: RandomHistory, plan: Repair, contents: Contents) -> None:
    """What is read is what was published, and what is not was said to be lost."""
    for queue in QUEUES.keys() & contents.bounds.keys():
        truth = history.bodies.get(queue, [])
        readable, lost = contents.readable[queue], lost_indexes(plan, queue)
        for index, body in readable.items():
            assert body == truth[index]
        assert not lost & readable.keys()
        assert lost | readable.keys() == set(range(*contents.bounds[queue]))
        for name in QUEUES[queue]:
            for index, body in contents.bodies.get((queue, name), {}).items():
                assert body == truth[index]


def check_nothing_is_missing(history: RandomHistory, plan: Repair, contents: Contents) -> None:
    """A message that can be read and was not acked is delivered, a dead letter, or held."""
    for queue in QUEUES.keys() & contents.bounds.keys():
        for name in QUEUES[queue]:
            reader = queue, name
            if reader not in contents.held:  # the subscription itself is lost
                continue
            wanted = {
                index
                for index, body in contents.readable[queue].items()
                if name not in ("even", "second") or is_even(body)
            }
            wanted -= history.acked.get(reader, set())
            there = set(contents.bodies.get(reader, {}))
            there |= contents.dead.get(reader, set()) | contents.held[reader]
            assert wanted <= there, (reader, wanted - there)


def check_dependencies(history: RandomHistory, contents: Contents) -> None:
    """Nobody gets a message before those it waits for have had it, now or before."""
    for (queue, name), parents in PARENTS.items():
        if not all((queue, parent) in contents.held for parent in (*parents, name)):
            continue
        for index in contents.bodies.get((queue, name), {}):
            for parent in parents:
                reader = queue, parent
                taken = index in contents.bodies.get(reader, {})
                taken |= index in history.acked.get(reader, set())
                taken |= name == "third" and index in contents.dead.get(reader, set())
                assert taken, (name, parent, index)


async def check_receipts(path: Path, history: RandomHistory) -> None:
    """After a gap no receipt from before it settles anything."""
    async with broker_on(path) as broker:
        stats = {queue.name: queue for queue in await broker.stats()}
        for (queue, name), receipts in history.receipts.items():
            if queue in stats and name in {s.name for s in stats[queue].subscriptions}:
                outcomes = await broker.ack(queue, sorted(receipts), name)
                assert "done" not in {outcome.value for outcome in outcomes}


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_a_repair_keeps_all_that_can_be_read(tmp_path: Path, seed: int) -> None:
    # Given a directory that was damaged
    path = tmp_path / "data"
    history = await make_random_history(path, seed)
    assert verify(DiskFiles(path)).is_good
    rng = Random(seed)
    last = max(p.name for p in path.glob("0*.log"))
    damaged = do_damage(path, rng)
    is_found = not verify(DiskFiles(path)).is_good
    # When it is repaired
    plan = plan_repair(DiskFiles(path), rng=rng)
    assert plan.is_needed == is_found
    if plan.is_needed:
        plan.apply(DiskFiles(path), directory="damaged", random_bytes=rng.randbytes)
        assert verify(DiskFiles(path)).is_good
    # Then it opens, and nothing is missing but what was said to be lost
    if plan.is_gapped:
        await check_receipts(path, history)
    contents = await drain(path)
    check_messages(history, plan, contents)
    if plan.has_checkpoint or not plan.is_gapped:
        check_nothing_is_missing(history, plan, contents)
        check_dependencies(history, contents)
    # and without a gap nothing comes again (that the last records are gone cannot be seen)
    if not plan.is_gapped and last not in damaged:
        for reader, acked in history.acked.items():
            assert not acked & contents.bodies.get(reader, {}).keys()
