"""Looking at what waits for what, and at what a filter would do."""

from __future__ import annotations

import pytest

from penstock.broker import Broker
from penstock.core.graph import Edge, HeldMessage
from penstock.core.message import NewMessage, ViewedMessage
from penstock.errors import InvalidFilter, QueueNotFound


async def ack(broker: Broker, queue: str, subscription: str, count: int) -> None:
    taken = await broker.receive(queue, subscription=subscription, limit=count)
    await broker.ack(queue, taken, subscription)


async def test_a_held_message_is_listed_with_those_that_it_waits_for(
    broker: Broker, queue: str
) -> None:
    # Given C after A and B, of whom A has taken one message and B two
    for name in "AB":
        await broker.create_subscription(queue, name)
    await broker.create_subscription(queue, "C", after=["A", "B"])
    await broker.publish(queue, [b"0", b"1", b"2"])
    await ack(broker, queue, "A", 1)
    await ack(broker, queue, "B", 2)
    # Then each message says whom it waits for
    assert await broker.held_messages(queue, "C") == [
        HeldMessage(index=1, waits_for=["A"]),
        HeldMessage(index=2, waits_for=["A", "B"]),
    ]
    assert await broker.held_messages(queue, "C", 1) == [HeldMessage(index=1, waits_for=["A"])]
    assert await broker.held_messages(queue, "A") == []


async def test_a_message_waits_for_one_that_has_it_as_a_dead_letter(
    broker: Broker, queue: str
) -> None:
    await broker.create_subscription(queue, "A", max_deliveries=1)
    await broker.create_subscription(queue, "C", after=["A"])
    await broker.publish(queue, [b"0"])
    await broker.nack(queue, await broker.receive(queue, subscription="A"), "A")
    assert await broker.held_messages(queue, "C") == [HeldMessage(index=0, waits_for=["A"])]


async def test_what_a_parents_filter_keeps_out_waits_for_the_other_one_alone(
    broker: Broker, queue: str
) -> None:
    await broker.create_subscription(queue, "A", filter="body.n > 1")
    await broker.create_subscription(queue, "B")
    await broker.create_subscription(queue, "C", after=["A", "B"])
    await broker.publish(queue, [b'{"n": 1}'])
    assert await broker.held_messages(queue, "C") == [HeldMessage(index=0, waits_for=["B"])]


async def test_the_graph_has_every_subscription_and_who_waits_for_whom(
    broker: Broker, queue: str
) -> None:
    await broker.create_subscription(queue, "A", filter="priority > 1")
    await broker.create_subscription(queue, "B", after=["A", "default"], on_dead_parent="cascade")
    await broker.publish(queue, [NewMessage(body=b"x", priority=2)])
    graph = await broker.graph(queue)
    assert graph.queue == queue
    assert [(node.name, node.filter, node.ready, node.held) for node in graph.subscriptions] == [
        ("default", None, 1, 0),
        ("A", "priority > 1", 1, 0),
        ("B", None, 0, 1),
    ]
    assert graph.dependencies == [
        Edge(before="A", after="B", on_dead_parent="cascade"),
        Edge(before="default", after="B", on_dead_parent="cascade"),
    ]


async def test_a_filter_is_tried_on_the_newest_messages(broker: Broker, queue: str) -> None:
    bodies = [b'{"n": %d}' % n for n in range(150)]
    await broker.publish(queue, [*bodies, b"no json", b'{"n": 500}'])
    found = await broker.test_filter(queue, "body.n >= 140", last=20)
    assert (found.tested, found.matched, found.failed) == (
        20,
        [*range(140, 150), 151],
        [150],
    )
    every = await broker.test_filter(queue, "body.n >= 140", last=1000)
    assert (every.tested, len(every.matched)) == (152, 11)


async def test_a_filter_sees_all_of_a_message(broker: Broker, queue: str) -> None:
    message = NewMessage(body=b"x", topic="t", priority=3, attributes={"a": "b"})
    published = await broker.publish(queue, [message, b"y"])
    text = f'topic == "t" && priority == 3 && attributes.a == "b" && id == "{published[0].id}"'
    assert (await broker.test_filter(queue, text)).matched == [0]


async def test_trying_a_filter_takes_nothing(broker: Broker, queue: str) -> None:
    await broker.publish(queue, [b"1"])
    before = await broker.stats()
    await broker.test_filter(queue, "true")
    assert await broker.stats() == before


async def test_a_filter_that_is_none_and_a_queue_that_is_none_are_refused(
    broker: Broker, queue: str
) -> None:
    with pytest.raises(InvalidFilter):
        await broker.test_filter(queue, "body.n >")
    with pytest.raises(QueueNotFound):
        await broker.test_filter("none", "true")
    with pytest.raises(QueueNotFound):
        await broker.graph("none")


@pytest.mark.parametrize("settled", [None, True, False])
async def test_a_view_in_parts_is_the_same_as_all_at_once(
    broker: Broker, queue: str, settled: bool | None
) -> None:
    # Given messages of which some are settled, in between
    await broker.publish(queue, [b"%d" % number for number in range(9)])
    given = await broker.receive(queue, limit=7)
    await broker.ack(queue, [given[at] for at in (0, 2, 3, 5)])
    whole = await broker.view(queue, settled=settled)
    # When they are looked at two by two
    found: list[ViewedMessage] = []
    while part := await broker.view(
        queue, settled=settled, start=found[-1].index + 1 if found else 0, limit=2
    ):
        found += part
    # Then all were seen once
    assert found == whole
    assert len(whole) == {None: 9, True: 4, False: 5}[settled]
