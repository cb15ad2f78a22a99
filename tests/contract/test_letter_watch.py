"""Dead letters are told of as they come: once each, and without what is in them."""

from __future__ import annotations

from penstock.broker import Broker
from penstock.core.message import DeadLetter
from tests.contract.test_dead_letters import fail
from tests.contract.world import QUEUE, World


class Watch:
    def __init__(self) -> None:
        self.seen: list[tuple[str, DeadLetter]] = []
        self.left_out = 0

    def buried(self, id: str, letter: DeadLetter) -> None:
        self.seen.append((id, letter))

    def more(self, queue: str, count: int) -> None:
        assert queue == QUEUE
        self.left_out += count


async def test_whoever_watches_is_told_of_every_letter_once(
    world: World, broker: Broker, queue: str
) -> None:
    # Given one subscription that gives up at once, and another that does when the first has
    watch = Watch()
    world.watch_letters(watch)
    await broker.alter_subscription(queue, "default", max_deliveries=1)
    await broker.create_subscription(
        queue, "behind", after=("default",), on_dead_parent="cascade", start="earliest"
    )
    await broker.publish(queue, [b"a", b"b", b"c"])
    # When a message fails by a nack, and another by its lease
    await fail(broker, reason="no good")
    await broker.receive(queue, lease_seconds=1)
    await world.pass_time(2)
    # Then each of the letters is told of
    letters = await broker.dead_letters(queue)
    expected = {(one.id, one.dead_letter) for one in letters}
    assert len(watch.seen) == len(expected) == 4
    assert set(watch.seen) == expected
    assert {one.reason for _, one in watch.seen} == {
        "no good",
        "max-deliveries",
        "dead-lettered by default",
    }
    # And nothing is told twice, but what is new
    await world.pass_time(2)
    assert len(watch.seen) == 4
    await fail(broker)
    await world.pass_time(2)
    assert len(watch.seen) == 6
    assert watch.left_out == 0


async def test_of_very_many_at_once_at_least_the_number_is_told(
    world: World, broker: Broker, queue: str
) -> None:
    watch = Watch()
    world.watch_letters(watch)
    await broker.alter_subscription(queue, "default", max_deliveries=1, max_in_flight=1000)
    await broker.publish(queue, [b"x"] * 150)
    await fail(broker, count=150)
    await world.pass_time(2)
    assert len(watch.seen) + watch.left_out == 150
    assert len({one.index for _, one in watch.seen}) == len(watch.seen) >= 100
