"""Taking everything out of a store, to see what it still had."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from penstock.broker import Broker
from tests.faults.store import Clock, broker_on

Reader = tuple[str, str]
"""A queue and a subscription."""


@dataclass
class Contents:
    """What was read by index, what was delivered in which order, and what else is known of it."""

    readable: dict[str, dict[int, bytes]] = field(default_factory=dict)
    bounds: dict[str, tuple[int, int]] = field(default_factory=dict)
    delivered: dict[Reader, list[int]] = field(default_factory=dict)
    bodies: dict[Reader, dict[int, bytes]] = field(default_factory=dict)
    dead: dict[Reader, set[int]] = field(default_factory=dict)
    held: dict[Reader, set[int]] = field(default_factory=dict)


async def drain(path: Path) -> Contents:
    """Open the store, read all, and receive and ack all that is delivered, months later."""
    clock = Clock()
    clock.advance(10**7)
    contents = Contents()
    async with broker_on(path, clock=clock) as broker:
        queues = await broker.stats()
        for queue in queues:
            found = await broker.read(queue.name, 0, 10_000)
            contents.readable[queue.name] = {m.index: m.body for m in found}
            contents.bounds[queue.name] = queue.first_index, queue.next_index
        sources = [queue for queue in queues if not queue.name.endswith("-dlq")]
        readers = [(q.name, s.name) for q in sources for s in q.subscriptions]
        for _ in range(len(readers)):  # those that wait for others come to nothing at first
            for reader in readers:
                await _receive_all(broker, contents, reader)
        # Only now: a lease that had run out may have made a dead letter.
        for queue in sources:
            for letter in await broker.dead_letters(queue.name, 0, 1000):
                assert letter.dead_letter is not None
                failed = queue.name, letter.dead_letter.subscription
                contents.dead.setdefault(failed, set()).add(letter.dead_letter.index)
        for queue_name, name in readers:
            held = await broker.held(queue_name, name, 10_000)
            contents.held[queue_name, name] = set(held)
    return contents


async def _receive_all(broker: Broker, contents: Contents, reader: Reader) -> None:
    queue, subscription = reader
    while True:
        deliveries = await broker.receive(queue, subscription=subscription, limit=10)
        if not deliveries:
            return
        order = contents.delivered.setdefault(reader, [])
        bodies = contents.bodies.setdefault(reader, {})
        for delivery in deliveries:
            assert delivery.index not in bodies, f"{delivery.index} came again on {reader}"
            order.append(delivery.index)
            bodies[delivery.index] = delivery.body
        await broker.ack(queue, [d.receipt for d in deliveries], subscription)
