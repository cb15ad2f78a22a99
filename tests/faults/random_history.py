"""Random histories, for damage to be done to."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from penstock import NewMessage
from penstock.broker import Broker
from penstock.core.settling import Outcome
from tests.faults.store import Clock, History, abandon, open_store, order

QUEUES = {
    "plain": ["default", "even", "audit"],
    "groups": ["default", "first", "second", "third"],
}


@dataclass
class RandomHistory(History):
    """``receipts`` are those of deliveries that were not settled."""

    receipts: dict[tuple[str, str], set[str]] = field(default_factory=dict)


async def make_random_history(path: Path, seed: int) -> RandomHistory:
    """Publishes, receives, acks, nacks, dead letters and replays; no purge, seek or discard.

    So a message that was not acked has to be delivered, be a dead letter, or be held.
    """
    rng, clock, history = Random(seed), Clock(), RandomHistory()
    store = await open_store(path, clock=clock)
    broker = Broker(store)
    await broker.create_queue("plain", retention_seconds=None)
    await broker.create_queue("groups", fifo=True, retention_seconds=None, events=True)
    await broker.create_subscription("plain", "even", filter="body.kind == 'even'")
    await broker.create_subscription("plain", "audit", lease_seconds=1e5)
    await broker.create_subscription("groups", "first", max_deliveries=2)
    await broker.create_subscription(
        "groups", "second", after=["first"], filter="body.kind == 'even'"
    )
    await broker.create_subscription(
        "groups", "third", after=["first", "default"], on_dead_parent="ignore"
    )
    for step in range(rng.randrange(60, 160)):
        clock.advance(rng.random() * 10)
        queue = rng.choice(list(QUEUES))
        subscription = rng.choice(QUEUES[queue])
        action = rng.random()
        if action < 0.35:
            messages = [random_message(rng, step) for _ in range(rng.randrange(1, 5))]
            await history.publish(broker, queue, messages)
        elif action < 0.85:
            await _consume(rng, broker, history, queue, subscription)
        elif action < 0.93:
            await store.tick()
        elif action < 0.97:
            await broker.replay(queue)
        elif rng.random() < 0.3:
            await store.checkpoint()
        else:
            await broker.alter_subscription(queue, subscription, max_in_flight=step + 50)
    if rng.random() < 0.5:
        await broker.close()
    else:
        await abandon(store)
    return history


def random_message(rng: Random, number: int) -> NewMessage:
    settings: dict[str, object] = {}
    if rng.random() < 0.2:
        settings["priority"] = rng.randrange(3)
    if rng.random() < 0.3:
        settings["group_key"] = rng.choice("ab")
    if rng.random() < 0.1:
        settings["attributes"] = {"padding": "." * rng.randrange(600)}
    return order(rng.randrange(10 * number + 10), **settings)


async def _consume(
    rng: Random, broker: Broker, history: RandomHistory, queue: str, subscription: str
) -> None:
    deliveries = await broker.receive(queue, subscription=subscription, limit=rng.randrange(1, 8))
    receipts = history.receipts.setdefault((queue, subscription), set())
    receipts.update(d.receipt for d in deliveries)
    for delivery in deliveries:
        chance = rng.random()
        receipt = delivery.receipt
        if chance < 0.6:
            [outcome] = await broker.ack(queue, [receipt], subscription)
            assert outcome is Outcome.DONE
            history.acked.setdefault((queue, subscription), set()).add(delivery.index)
            receipts.discard(receipt)
        elif chance < 0.8:
            await broker.nack(queue, [receipt], subscription, delay_seconds=rng.random() * 5)
            receipts.discard(receipt)
