"""What is kept of a segment of which little is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import NewMessage
from penstock.broker import Broker
from penstock.storage.wal.store import WalStore
from tests.faults.store import open_store

KEPT = (3, 22)


def message(number: int) -> NewMessage:
    return NewMessage(body=b"%03d" % number + b"." * 50, attributes={"number": str(number)})


async def keep_a_few(store: WalStore) -> None:
    """Batches of four messages, of which two messages are needed and in a pack."""
    broker = Broker(store)
    await broker.create_queue("q", retention_messages=0)
    for first in range(0, 32, 4):
        await broker.publish("q", [message(number) for number in range(first, first + 4)])
    deliveries = await broker.receive("q", limit=32)
    await broker.ack("q", [d for d in deliveries if d.index not in KEPT])
    await broker.give_back("q", [d for d in deliveries if d.index in KEPT])
    for _ in range(2):  # the second one removes what the first has packed
        await store.tick()
        await store.checkpoint()


async def check(broker: Broker) -> None:
    kept = await broker.receive("q", limit=9)
    assert [(d.index, d.body, d.attributes) for d in kept] == [
        (number, message(number).body, message(number).attributes) for number in KEPT
    ]
    await broker.give_back("q", kept)


@pytest.mark.parametrize("index", ["as saved", "missing"])
async def test_messages_kept_of_a_batch_are_themselves_when_it_is_packed(
    tmp_path: Path, index: str
) -> None:
    # Given messages whose batches are gone
    path = tmp_path / "data"
    store = await open_store(path)
    await keep_a_few(store)
    [pack] = path.glob("*.pack")
    assert pack.stat().st_size < 200 * len(KEPT)
    # Then they are what they were, and after a restart as well
    async with Broker(store) as broker:
        await check(broker)
    if index == "missing":
        for file in path.glob("*.idx"):
            file.unlink()
    async with Broker(await open_store(path)) as broker:
        await check(broker)
