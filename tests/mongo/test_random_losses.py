"""Random histories in which Redis is wiped again and again."""

from __future__ import annotations

from random import Random

import pytest

from penstock.broker import Broker
from penstock.core.message import NewMessage
from tests.mongo.conftest import Addresses, Open

_STEPS = 80


def _message(rng: Random) -> NewMessage:
    return NewMessage(
        body=b"%d" % rng.getrandbits(32),
        priority=rng.choice((0, 0, 0, 5)),
        group_key=rng.choice((None, "a", "b")),
        topic=rng.choice((None, "red")),
    )


@pytest.mark.parametrize("seed", range(3))
async def test_nothing_accepted_is_lost_and_nothing_settled_comes_again(
    seed: int, addresses: Addresses, open_server: Open
) -> None:
    rng = Random(seed)
    store = await open_server()
    broker = Broker(store)
    await broker.create_queue("jobs", fifo=bool(seed % 2))
    # What the parent gives up on is held back from its child
    await broker.alter_subscription("jobs", "default", max_deliveries=None)
    await broker.create_subscription("jobs", "reds", filter='topic == "red"')
    await broker.create_subscription("jobs", "after", after=["default"], max_deliveries=3)
    readers = ("default", "reds", "after")
    sent: dict[int, NewMessage] = {}
    settled: dict[str, set[int]] = {name: set() for name in readers}
    counts: dict[tuple[str, int], int] = {}
    for _ in range(_STEPS):
        name = rng.choice(readers)
        match rng.choice(("publish", "ack", "ack", "nack", "leave", "alter", "wipe")):
            case "publish":
                batch = [_message(rng) for _ in range(rng.randint(1, 4))]
                for message, published in zip(
                    batch, await broker.publish("jobs", batch), strict=True
                ):
                    assert published.index not in sent
                    sent[published.index] = message
            case "alter":
                await broker.alter_subscription("jobs", name, max_in_flight=rng.randint(50, 99))
            case "wipe":
                await store.close()
                await addresses.wipe_redis()
                store = await open_server()
                broker = Broker(store)
            case action:
                given = await broker.receive("jobs", subscription=name, limit=rng.randint(1, 5))
                for one in given:
                    assert one.body == sent[one.index].body
                    assert one.index not in settled[name]
                    counts[name, one.index] = counts.get((name, one.index), 0) + 1
                    assert one.deliveries == counts[name, one.index]
                    assert name != "after" or one.index in settled["default"]
                if action == "ack":
                    await broker.ack("jobs", given, subscription=name)
                    settled[name] |= {one.index for one in given}
                elif action == "nack":
                    await broker.nack("jobs", given, subscription=name, delay_seconds=0)
    # In the end everything is delivered to whom it is for
    await store.close()
    await addresses.wipe_redis()
    broker = Broker(await open_server())
    letters = await broker.dead_letters("jobs", limit=1000)
    for letter in letters:
        assert letter.dead_letter is not None
        settled[letter.dead_letter.subscription].add(letter.dead_letter.index)
    for name in readers:
        while given := await broker.receive("jobs", subscription=name, limit=50):
            assert not settled[name] & {one.index for one in given}
            settled[name] |= {one.index for one in given}
            await broker.ack("jobs", given, subscription=name)
    assert settled["default"] == settled["after"] == set(sent)
    assert settled["reds"] == {index for index, message in sent.items() if message.topic}
