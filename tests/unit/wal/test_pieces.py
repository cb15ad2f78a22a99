from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from penstock.broker import Broker
from penstock.core.message import NewMessage
from penstock.core.snapshot import MachineSnapshot, take_snapshot
from penstock.storage.memory import MemoryStore
from penstock.storage.wal import pieces as module
from penstock.storage.wal.checkpoint import Checkpoint
from penstock.storage.wal.pieces import pieces


class Columns(msgspec.Struct):
    names: list[str]
    numbers: dict[int, str]


@pytest.mark.parametrize("count", [0, 1, 15, 16, 4096, 4097, 4111, 4112, 65_535, 65_536, 70_000])
def test_lists_and_maps_of_any_length_are_as_if_encoded_at_once(count: int) -> None:
    value = Columns([str(at) for at in range(count)], {at: str(at) for at in range(count)})
    found = list(pieces(value))
    assert b"".join(found) == msgspec.msgpack.encode(value)
    # And no piece has more than a part of them
    assert max(map(len, found)) < 64 * 1024


@pytest.mark.parametrize("most", [1, 3, 20])
async def test_a_checkpoint_in_small_pieces_is_as_if_encoded_at_once(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a machine that has some of everything of which there may be very many
    machine = await snapshot_of_everything()
    checkpoint = Checkpoint(segment=3, segments=[1, 2], packs={1: "a"}, machine=machine)
    # When what has more than a few entries is taken apart
    monkeypatch.setattr(module, "_MOST_ENTRIES", most)
    found = list(pieces(checkpoint))
    # Then the whole is the same
    assert b"".join(found) == msgspec.msgpack.encode(checkpoint)
    assert len(found) > 4


async def snapshot_of_everything() -> MachineSnapshot:
    store = MemoryStore()
    async with Broker(store) as broker:
        await broker.create_queue("plain")
        await broker.create_queue("fifo", fifo=True)
        await broker.create_subscription("plain", "late")
        for at in range(30):
            later = datetime(2100, 1, 1, tzinfo=UTC) + timedelta(hours=at)
            await broker.publish("plain", [b"x"], idempotency_key=f"request-{at}")
            await broker.publish(
                "plain",
                [
                    NewMessage(body=b"x", dedup_key=f"key-{at}", expires_at=later),
                    NewMessage(body=b"x", not_before=later),
                ],
                idempotency_key=f"requests-{at}",
            )
            await broker.publish(
                "fifo", [NewMessage(body=b"x", group_key=f"group-{at % 4}") for _ in range(3)]
            )
        for _ in range(20):
            await broker.receive("plain")
        [failed] = await broker.receive("plain")
        await broker.nack("plain", [failed], reason="no")
        return take_snapshot(store.machine)
