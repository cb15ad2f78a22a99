from __future__ import annotations

import json

import pytest

from penstock.broker import Broker
from penstock.core.message import NewMessage
from penstock.errors import InvalidArgument, InvalidFilter
from tests.contract.world import World, bodies, indexes, receipts


def on_topics(*topics: str) -> list[NewMessage]:
    return [NewMessage(body=topic.encode(), topic=topic or None) for topic in topics]


async def test_a_filter_sees_body_attributes_topic_priority_and_id(
    broker: Broker, queue: str
) -> None:
    wanted = {
        "body": "body.amount > 100",
        "attributes": 'attributes.tenant == "acme"',
        "topic": 'topic.startsWith("or")',
        "priority": "priority == 7",
        "id": "size(id) == 36",
    }
    for name, text in wanted.items():
        await broker.create_subscription(queue, name, filter=text)
    await broker.publish(
        queue,
        [
            NewMessage(
                body=json.dumps({"amount": 101}).encode(),
                attributes={"tenant": "acme"},
                topic="orders",
                priority=7,
            ),
            NewMessage(body=b'{"amount": 1}', attributes={"tenant": "b"}, topic="x"),
        ],
    )
    for name in wanted:
        given = await broker.receive(queue, subscription=name, limit=5)
        assert indexes(given) == ([0, 1] if name == "id" else [0]), name


async def test_what_a_filter_keeps_out_is_settled_and_counted(
    world: World, broker: Broker, queue: str
) -> None:
    await broker.create_subscription(queue, "reds", filter='topic == "red"')
    await broker.publish(queue, on_topics("blue", "red", "blue", "red", "blue"))
    given = await broker.receive(queue, subscription="reds", limit=9)
    assert indexes(given) == [1, 3]
    stats = await world.stats("reds")
    assert (stats.filtered, stats.in_flight, stats.lowest_unacked_index) == (3, 2, 1)
    await broker.ack(queue, receipts(given), "reds")
    assert (await world.stats("reds")).lowest_unacked_index == 5


async def test_a_body_that_is_not_json_is_null_to_a_filter(broker: Broker, queue: str) -> None:
    await broker.create_subscription(queue, "other", filter="body == null")
    await broker.publish(queue, [b"not json", b'{"a": 1}', b"null"])
    assert indexes(await broker.receive(queue, subscription="other", limit=9)) == [0, 2]


async def test_an_error_is_no_match_and_is_counted(
    world: World, broker: Broker, queue: str
) -> None:
    await broker.create_subscription(queue, "big", filter="body.amount > 100")
    await broker.publish(queue, [b'{"other": 1}', b'{"amount": 500}', b'{"amount": "x"}'])
    assert indexes(await broker.receive(queue, subscription="big", limit=9)) == [1]
    stats = await world.stats("big")
    assert (stats.filter_errors, stats.filtered) == (2, 2)


@pytest.mark.parametrize("text", ["", "topic ==", "priority + 1", "nothing == 1", "'a'"])
async def test_a_filter_is_checked_when_it_is_declared(
    broker: Broker, queue: str, text: str
) -> None:
    with pytest.raises(InvalidFilter):
        await broker.create_subscription(queue, "audit", filter=text)
    assert len((await broker.queue_stats(queue)).subscriptions) == 1


async def test_a_filter_cannot_be_altered(broker: Broker, queue: str) -> None:
    await broker.create_subscription(queue, "reds", filter='topic == "red"')
    with pytest.raises(InvalidArgument):
        await broker.alter_subscription(queue, "reds", filter='topic == "blue"')
    with pytest.raises(InvalidArgument):
        await broker.alter_subscription(queue, "default", filter='topic == "blue"')
    await broker.alter_subscription(queue, "reds", filter='topic == "red"', max_in_flight=1)


async def test_many_subscriptions_each_get_their_topic(broker: Broker, queue: str) -> None:
    for n in range(20):
        await broker.create_subscription(queue, f"s{n}", filter=f'topic == "t{n}"')
    await broker.create_subscription(queue, "none", filter='topic == ""')
    await broker.publish(queue, on_topics(*(f"t{n % 20}" for n in range(40)), ""))
    await broker.publish(queue, [b"plain"])
    for n in range(20):
        given = await broker.receive(queue, subscription=f"s{n}", limit=9)
        assert indexes(given) == [n, n + 20]
    assert indexes(await broker.receive(queue, subscription="none", limit=9)) == [40, 41]


@pytest.mark.parametrize("text", ['topic == "red"', 'topic == "red" && priority >= 0'])
async def test_a_filter_looks_at_old_messages_too(
    world: World, broker: Broker, queue: str, text: str
) -> None:
    # Given one subscription from the middle of the queue on
    await broker.publish(queue, on_topics("red", "blue", "red"))
    await broker.create_subscription(queue, "new", filter=text)
    await broker.publish(queue, on_topics("blue", "red"))
    # When another one with the same filter begins at the start
    await broker.create_subscription(queue, "old", filter=text, start="earliest")
    await broker.create_subscription(queue, "middle", filter=text, start=1)
    # Then each has what lies ahead of it, and no more
    assert (await world.stats("new")).ready == 1
    assert indexes(await broker.receive(queue, subscription="new", limit=9)) == [4]
    assert indexes(await broker.receive(queue, subscription="old", limit=9)) == [0, 2, 4]
    assert indexes(await broker.receive(queue, subscription="middle", limit=9)) == [2, 4]


async def test_old_messages_keep_their_delay_group_and_priority(
    world: World, broker: Broker
) -> None:
    await broker.create_queue("jobs", fifo=True)
    await broker.publish(
        "jobs",
        [
            NewMessage(body=b"0", topic="t", not_before=world.clock.later(5)),
            NewMessage(body=b"1", topic="t", group_key="g"),
            NewMessage(body=b"2", topic="t", group_key="g"),
            NewMessage(body=b"3", topic="t", priority=9),
            NewMessage(body=b"4", topic="other"),
            NewMessage(body=b"5", topic="t"),
        ],
    )
    await broker.create_subscription("jobs", "t", filter='topic == "t"', start="earliest")
    given = await broker.receive("jobs", subscription="t", limit=9)
    assert bodies(given) == [b"3", b"1", b"5"]
    world.clock.advance(5)
    assert bodies(await broker.receive("jobs", subscription="t", limit=9)) == [b"0"]


async def test_the_last_reader_of_a_filter_takes_it_along(broker: Broker, queue: str) -> None:
    await broker.create_subscription(queue, "reds", filter='topic == "red"')
    await broker.delete_subscription(queue, "reds")
    await broker.publish(queue, on_topics("red"))
    await broker.create_subscription(queue, "reds", filter='topic == "red"', start="earliest")
    assert indexes(await broker.receive(queue, subscription="reds", limit=9)) == [0]


@pytest.mark.over_restarts
async def test_what_matched_survives_a_restart(world: World, broker: Broker, queue: str) -> None:
    await broker.create_subscription(queue, "reds", filter='topic == "red"')
    await broker.create_subscription(queue, "big", filter="body.n > 1")
    await broker.publish(queue, on_topics("red", "blue"))
    await broker.publish(queue, [b'{"n": 1}', b'{"n": 2}'])
    await world.restart()
    await broker.publish(queue, [*on_topics("red"), b'{"n": 3}'])
    assert indexes(await broker.receive(queue, subscription="reds", limit=9)) == [0, 4]
    assert indexes(await broker.receive(queue, subscription="big", limit=9)) == [3, 5]


async def test_a_filter_that_says_the_same_in_other_words_goes_on_alone(
    broker: Broker, queue: str
) -> None:
    await broker.create_subscription(queue, "one", filter='topic == "red"')
    await broker.create_subscription(queue, "same", filter='topic  ==  "red"')
    await broker.delete_subscription(queue, "one")
    await broker.publish(queue, [NewMessage(body=b"a", topic="red"), b"b"])
    given = await broker.receive(queue, subscription="same", limit=5)
    assert [delivery.body for delivery in given] == [b"a"]
