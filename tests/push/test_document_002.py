"""Document 002, the Message Queue System: each of its processes, over HTTP, with real callbacks.

The numbers are those of the document's steps.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web

from penstock.client import AsyncClient
from penstock.core.settling import Outcome
from penstock.errors import (
    MessageNotFound,
    NotLeased,
    QueueExists,
    QueueNotFound,
    SubscriptionExists,
    SubscriptionNotFound,
)
from tests.http.server import Server, running
from tests.programs import QUICK_PENSTOCK
from tests.push.receiver import PATIENCE_SECONDS, Call, Receiver

_numbers = count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("document-002")
    with running(str(directory / "data"), directory / "log", program=QUICK_PENSTOCK) as server:
        yield server


@pytest_asyncio.fixture
async def client(server: Server) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(server.url, username="admin", password="adminpassword") as client:
        yield client


@pytest_asyncio.fixture
async def queue(client: AsyncClient) -> str:
    name = f"queue-{next(_numbers)}"
    await client.create_queue(name)
    return name


async def register(
    client: AsyncClient, queue: str, receiver: Receiver, name: str = "reader"
) -> None:
    await client.create_subscription(
        queue,
        name,
        lease_seconds=None,
        callback={"url": receiver.url(name), "mode": "notify"},
    )


def bodies(deliveries: object) -> list[bytes]:
    return [one.body for one in deliveries]  # type: ignore[attr-defined]


# CreateQueue.


async def test_create_queue_1_to_4_a_queue_is_made_and_answered(client: AsyncClient) -> None:
    made = await client.create_queue("made")
    assert (made.name, made.messages) == ("made", 0)


async def test_create_queue_3_1_one_that_exists_is_refused(client: AsyncClient, queue: str) -> None:
    with pytest.raises(QueueExists, match="exists already"):
        await client.create_queue(queue)


# RegisterSubscriber.


async def test_register_subscriber_1_to_4_a_subscriber_is_added(
    client: AsyncClient, queue: str, receiver: Receiver
) -> None:
    await register(client, queue, receiver)
    assert [one.name for one in await client.subscriptions(queue)] == ["default", "reader"]


async def test_register_subscriber_3_2_an_unknown_queue_is_refused(
    client: AsyncClient, receiver: Receiver
) -> None:
    with pytest.raises(QueueNotFound):
        await register(client, "none", receiver)


async def test_register_subscriber_4_1_one_that_is_registered_is_refused(
    client: AsyncClient, queue: str, receiver: Receiver
) -> None:
    await register(client, queue, receiver)
    with pytest.raises(SubscriptionExists):
        await register(client, queue, receiver)


# PublishMessage, and the broker's SetMessage.


async def test_publish_message_1_to_4_and_set_message_2_and_6_it_gets_the_next_number(
    client: AsyncClient, queue: str
) -> None:
    indexes = [(await client.publish(queue, [b"m"]))[0].index for _ in range(3)]
    assert indexes == [0, 1, 2]


async def test_publish_message_3_2_an_unknown_queue_is_refused(client: AsyncClient) -> None:
    with pytest.raises(QueueNotFound):
        await client.publish("none", [b"m"])


async def test_publish_message_5_and_set_message_5_subscribers_are_told_the_lowest_unacked(
    client: AsyncClient, queue: str, receiver: Receiver
) -> None:
    # Given two subscribers, of whom one has acked the first message
    await register(client, queue, receiver, "quick")
    await register(client, queue, receiver, "slow")
    await client.publish(queue, [b"a"])
    await receiver.wait_for(2)
    await client.ack(queue, await client.poll(queue, "quick", start=0, count=1), "quick")
    # When another message is published
    await client.publish(queue, [b"b"])
    calls = (await receiver.wait_for(4))[2:]
    # Then each is told its own
    told = {call.path: call.json["lowest_unacked_index"] for call in calls}
    assert told == {"/quick": 1, "/slow": 0}


async def test_the_answer_to_a_callback_is_of_no_consequence(
    client: AsyncClient, queue: str, receiver: Receiver
) -> None:
    async def fail(call: Call) -> web.StreamResponse:
        return web.Response(status=500)

    receiver.behave = fail
    await register(client, queue, receiver)
    for number in range(2):
        await client.publish(queue, [b"m"])
        await receiver.wait_for(number + 1)
    assert (await client.subscription_stats(queue, "reader")).ready == 2


# PollMessage, and the broker's GetMessage.


async def test_poll_message_3_2_an_unknown_queue_is_refused(client: AsyncClient) -> None:
    with pytest.raises(QueueNotFound):
        await client.poll("none", "reader", start=0, count=1)


async def test_poll_message_4_2_a_subscriber_that_is_not_registered_is_refused(
    client: AsyncClient, queue: str
) -> None:
    with pytest.raises(SubscriptionNotFound):
        await client.poll(queue, "nobody", start=0, count=1)


async def test_poll_message_5_and_get_message_2_a_range_behind_what_was_sent_before(
    client: AsyncClient, queue: str, receiver: Receiver
) -> None:
    await register(client, queue, receiver)
    await client.publish(queue, [b"%d" % n for n in range(6)])
    assert bodies(await client.poll(queue, "reader", start=0, count=3)) == [b"0", b"1", b"2"]
    # 2.3 the part that was sent already is left out, and 2.4 the counter moves
    assert bodies(await client.poll(queue, "reader", start=1, count=4)) == [b"3", b"4"]
    assert (await client.subscription_stats(queue, "reader")).cursor == 5
    assert bodies(await client.poll(queue, "reader", start=0, count=3)) == []


async def test_get_message_2_5_and_2_6_no_more_than_the_cap_is_unacked(
    client: AsyncClient, queue: str
) -> None:
    await client.create_subscription(queue, "capped", max_in_flight=2, lease_seconds=None)
    await client.publish(queue, [b"%d" % n for n in range(5)])
    first = await client.poll(queue, "capped", start=0, count=5)
    assert bodies(first) == [b"0", b"1"]
    assert await client.poll(queue, "capped", start=2, count=5) == []
    # The counter of acks is the lowest that is un-acked: an ack above it makes no room yet
    await client.ack(queue, first[1:], "capped")
    assert await client.poll(queue, "capped", start=2, count=5) == []
    await client.ack(queue, first[:1], "capped")
    assert bodies(await client.poll(queue, "capped", start=2, count=5)) == [b"2", b"3"]


async def test_get_message_1_polls_at_once_share_no_message(
    client: AsyncClient, queue: str, receiver: Receiver
) -> None:
    await register(client, queue, receiver)
    await client.publish(queue, [b"%d" % n for n in range(40)])
    polls = [client.poll(queue, "reader", start=0, count=40) for _ in range(4)]
    got = [body for deliveries in await asyncio.gather(*polls) for body in bodies(deliveries)]
    assert sorted(got) == sorted(b"%d" % n for n in range(40))


async def test_a_poll_of_nothing_is_answered_at_once(
    client: AsyncClient, queue: str, receiver: Receiver
) -> None:
    await register(client, queue, receiver)
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await client.poll(queue, "reader", start=0, count=5) == []


# Concerns and assumptions.


async def test_acks_come_later_and_in_any_order(
    client: AsyncClient, queue: str, receiver: Receiver
) -> None:
    await register(client, queue, receiver)
    await client.publish(queue, [b"%d" % n for n in range(4)])
    taken = await client.poll(queue, "reader", start=0, count=4)
    assert await client.ack(queue, [taken[2], taken[0]], "reader") == [Outcome.DONE] * 2
    assert (await client.subscription_stats(queue, "reader")).lowest_unacked_index == 1
    await client.ack(queue, [taken[1].id, taken[3].receipt], "reader")
    assert (await client.subscription_stats(queue, "reader")).lowest_unacked_index == 4


async def test_one_particular_message_is_polled_again_as_a_retry(
    client: AsyncClient, queue: str, receiver: Receiver
) -> None:
    await register(client, queue, receiver)
    await client.publish(queue, [b"%d" % n for n in range(3)])
    taken = await client.poll(queue, "reader", start=0, count=3)
    again = await client.ask_again(queue, "reader", 1)
    assert (again.body, again.deliveries, again.id) == (b"1", 2, taken[1].id)
    # Nobody else is troubled, and nothing is put back into the queue
    assert (await client.queue_stats(queue)).next_index == 3
    # What is acked, or was never there, is not to be had
    await client.ack(queue, [again], "reader")
    with pytest.raises(NotLeased):
        await client.ask_again(queue, "reader", 1)
    with pytest.raises(MessageNotFound):
        await client.ask_again(queue, "reader", 9)


async def test_a_subscriber_goes_on_where_it_left_off(
    client: AsyncClient, queue: str, receiver: Receiver
) -> None:
    # Given one that went down with messages in its hands
    await register(client, queue, receiver)
    await client.publish(queue, [b"%d" % n for n in range(4)])
    taken = await client.poll(queue, "reader", start=0, count=3)
    await client.ack(queue, taken[:1], "reader")
    # When it comes back, it learns where it was
    stats = await client.subscription_stats(queue, "reader")
    assert (stats.lowest_unacked_index, stats.cursor, stats.in_flight) == (1, 3, 2)
    # Then it gets the same again, and what follows
    again = [await client.ask_again(queue, "reader", index) for index in (1, 2)]
    assert bodies(again) == [b"1", b"2"]
    assert bodies(await client.poll(queue, "reader", start=stats.cursor, count=9)) == [b"3"]


async def test_a_message_itself_can_come_with_the_callback(
    client: AsyncClient, queue: str, receiver: Receiver
) -> None:
    await client.create_subscription(queue, "direct", callback={"url": receiver.url()})
    await client.publish(queue, [b"hello"])
    [call] = await receiver.wait_for(1)
    assert call.body == b"hello"


async def test_a_queue_that_is_deleted_takes_its_subscribers_along(
    client: AsyncClient, receiver: Receiver
) -> None:
    await client.create_queue("short-lived")
    await register(client, "short-lived", receiver)
    await client.publish("short-lived", [b"m"])
    await receiver.wait_for(1)
    await client.delete_queue("short-lived")
    with pytest.raises(QueueNotFound):
        await client.poll("short-lived", "reader", start=0, count=1)
    # And its name can be used again, from the beginning
    await client.create_queue("short-lived")
    assert (await client.publish("short-lived", [b"m"]))[0].index == 0
