"""What happens to messages, told in a queue of its own."""

from __future__ import annotations

import pytest
import pytest_asyncio

from penstock.broker import Broker
from penstock.core.lifecycle import LEASE_EXPIRED_REASON, LifecycleRun, runs_in
from penstock.core.message import NewMessage
from penstock.errors import InvalidArgument, QueueExists, QueueNotFound, ReservedQueue
from tests.contract.world import World

EVENTS = "jobs-events"


async def rows(broker: Broker, queue: str = EVENTS) -> list[LifecycleRun]:
    return [run for message in await broker.read(queue, 0, 1000) for run in runs_in(message.body)]


async def told(broker: Broker) -> list[tuple[str, list[int], str | None, int | None]]:
    return [
        (run.event, list(range(run.start, run.stop)), run.subscription, run.deliveries)
        for run in await rows(broker)
    ]


@pytest_asyncio.fixture
async def observed(broker: Broker) -> str:
    await broker.create_queue("jobs", events=True)
    return "jobs"


async def test_a_life_is_told_step_by_step(world: World, broker: Broker, observed: str) -> None:
    await broker.publish(observed, [b"a", NewMessage(body=b"b", topic="t"), b"c"])
    deliveries = await broker.receive(observed, limit=3)
    await broker.ack(observed, deliveries[:1])
    await broker.nack(observed, deliveries[1:2], reason="broken")
    await world.pass_time(31)
    await broker.receive(observed, limit=1)

    assert await told(broker) == [
        ("published", [0], None, None),
        ("published", [1], None, None),
        ("published", [2], None, None),
        ("delivered", [0, 1, 2], "default", 1),
        ("acked", [0], "default", 1),
        ("nacked", [1], "default", 1),
        ("nacked", [2], "default", 1),
        ("delivered", [1], "default", 2),
    ]
    found = await rows(broker)
    assert [run.topic for run in found[:3]] == [None, "t", None]
    assert [run.reason for run in found[5:7]] == ["broken", LEASE_EXPIRED_REASON]
    (message,) = await broker.read(observed, 0, 1)
    assert {run.published_ns for run in found} == {message.created_at_ns}
    assert found[-1].at_ns - found[0].at_ns == 31_000_000_000


async def test_dead_letters_and_replays_are_told(broker: Broker, observed: str) -> None:
    await broker.alter_subscription(observed, "default", max_deliveries=1)
    await broker.publish(observed, [b"a", b"b"])
    deliveries = await broker.receive(observed, limit=2)
    await broker.nack(observed, deliveries, reason="bad")
    await broker.replay(observed)

    found = await rows(broker)
    assert [(run.event, run.start, run.reason, run.deliveries) for run in found[2:]] == [
        ("dead_lettered", 0, "bad", 1),
        ("dead_lettered", 1, "bad", 1),
        ("replayed", 0, None, None),
        ("replayed", 1, None, None),
    ]


async def test_what_expires_is_told_for_each_subscription(world: World, broker: Broker) -> None:
    await broker.create_queue("jobs", events=True, message_ttl_seconds=10)
    await broker.create_subscription("jobs", "other")
    await broker.publish("jobs", [b"a", b"b"])
    await world.pass_time(11)

    assert (await told(broker))[1:] == [
        ("expired", [0, 1], "default", None),
        ("expired", [0, 1], "other", None),
    ]


async def test_a_command_is_one_message_whatever_it_did(broker: Broker, observed: str) -> None:
    await broker.publish(observed, [b"x"] * 500)
    deliveries = await broker.receive(observed, limit=500)
    await broker.ack(observed, deliveries)

    (stats,) = [s for s in await broker.stats() if s.name == EVENTS]
    assert stats.next_index == 3
    assert stats.bytes < 1000


async def test_a_message_that_was_never_delivered_has_no_count(
    broker: Broker, observed: str
) -> None:
    (published,) = await broker.publish(observed, [b"a"])
    await broker.ack(observed, [published.id])

    assert (await told(broker))[1:] == [("acked", [0], "default", None)]


async def test_polls_and_asking_again_are_deliveries(broker: Broker, observed: str) -> None:
    await broker.publish(observed, [b"a", b"b"])
    await broker.poll(observed, "default", start=0, count=1)
    await broker.ask_again(observed, "default", 0)

    assert [(event, counts) for event, _, _, counts in (await told(broker))[1:]] == [
        ("delivered", 1),
        ("nacked", 1),
        ("delivered", 2),
    ]


async def test_it_is_a_queue_to_read_and_subscribe_to_but_not_to_write(
    broker: Broker, observed: str
) -> None:
    await broker.create_subscription(EVENTS, "watch", filter='body[0].event == "acked"')
    await broker.create_subscription(EVENTS, "all", start="earliest")
    (published,) = await broker.publish(observed, [b"a"])
    await broker.ack(observed, [published.id])

    (delivery,) = await broker.receive(EVENTS, subscription="watch", limit=10)
    assert [run.event for run in runs_in(delivery.body)] == ["acked"]
    assert delivery.content_type == "application/vnd.penstock.events+json"
    assert len(await broker.receive(EVENTS, subscription="all", limit=10)) == 2
    with pytest.raises(ReservedQueue):
        await broker.publish(EVENTS, [b"x"])
    with pytest.raises(ReservedQueue):
        await broker.delete_queue(EVENTS)
    with pytest.raises(InvalidArgument):
        await broker.alter_queue(EVENTS, events=True)


async def test_it_can_be_turned_off_and_on(broker: Broker, queue: str) -> None:
    await broker.publish(queue, [b"before"])
    await broker.alter_queue(queue, events=True)
    await broker.publish(queue, [b"on"])
    await broker.alter_queue(queue, events=False)
    await broker.publish(queue, [b"off"])
    await broker.alter_queue(queue, events=True)
    await broker.publish(queue, [b"on again"])

    assert [indexes for _, indexes, _, _ in await told(broker)] == [[1], [3]]


async def test_it_goes_with_its_queue(broker: Broker, observed: str) -> None:
    await broker.publish(observed, [b"a"])
    await broker.delete_queue(observed)

    with pytest.raises(QueueNotFound):
        await broker.read(EVENTS)
    await broker.create_queue(observed, events=True)
    assert await rows(broker) == []


async def test_a_name_that_is_taken_is_told_at_once(broker: Broker) -> None:
    await broker.create_queue(EVENTS)

    with pytest.raises(QueueExists, match="jobs-events"):
        await broker.create_queue("jobs", events=True)
    assert await broker.names() == [EVENTS]
    await broker.create_queue("jobs")
    with pytest.raises(QueueExists, match="jobs-events"):
        await broker.alter_queue("jobs", events=True)


async def test_its_history_is_kept_as_that_of_any_queue(world: World, broker: Broker) -> None:
    await broker.create_queue("jobs", events=True)
    await broker.alter_queue(EVENTS, retention_messages=1)
    for _ in range(3):
        await broker.publish("jobs", [b"a"])
    await world.pass_time(1)

    assert [run.start for run in await rows(broker)] == [2]


async def test_other_queues_are_not_told(broker: Broker, observed: str) -> None:
    await broker.create_queue("quiet")
    await broker.publish("quiet", [b"a"])
    (delivery,) = await broker.receive("quiet")
    await broker.ack("quiet", [delivery])

    assert await rows(broker) == []
    with pytest.raises(QueueNotFound):
        await broker.read("quiet-events")
