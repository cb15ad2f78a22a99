"""Whom the dispatcher calls: definitions that change, circuits that open, and the end of it."""

from __future__ import annotations

import asyncio
import functools
from typing import Literal

import pytest
from aiohttp import web

from penstock import Backoff, Callback
from penstock.broker import Broker
from penstock.push import LOOPBACK, Dispatcher, record
from penstock.push.circuit import Circuit
from penstock.storage.registry import open_store
from tests.push.conftest import QUEUE, dead_letters, stats_of, subscribe, until_stats
from tests.push.receiver import PATIENCE_SECONDS, Call, Receiver, answering

pytestmark = pytest.mark.usefixtures("dispatcher")


async def is_called(dispatcher: Dispatcher, queue: str, *, expected: bool) -> bool:
    """A change is followed a moment after its answer."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            found = dispatcher.state(queue, "default") is not None
            if found == expected:
                return found
            await asyncio.sleep(0.002)


# Definitions that change.


async def test_a_new_url_counts_from_the_next_call_on(broker: Broker, receiver: Receiver) -> None:
    await subscribe(broker, receiver.url("old"))
    await broker.publish(QUEUE, [b"a"])
    await receiver.wait_for(1)
    await broker.alter_subscription(QUEUE, "called", callback=Callback(url=receiver.url("new")))
    await broker.publish(QUEUE, [b"b"])
    calls = await receiver.wait_for(2)
    assert [call.path for call in calls] == ["/old", "/new"]


async def test_what_has_no_callback_any_more_is_called_no_more(
    broker: Broker, receiver: Receiver
) -> None:
    await subscribe(broker, receiver.url("gone"), "gone")
    await subscribe(broker, receiver.url("taken"), "taken")
    await subscribe(broker, receiver.url("left"), "left")
    await broker.delete_subscription(QUEUE, "gone")
    await broker.alter_subscription(QUEUE, "taken", callback=None)
    await broker.publish(QUEUE, [b"a"])
    await until_stats(broker, "left", lambda s: s.acked == 1)
    assert [call.path for call in receiver.calls] == ["/left"]
    assert (await stats_of(broker, "taken")).callback is None


async def test_a_subscription_made_anew_under_the_same_name_is_called_too(
    broker: Broker, receiver: Receiver
) -> None:
    for number in range(3):
        await subscribe(broker, receiver.url(str(number)))
        await broker.publish(QUEUE, [b"%d" % number])
        await receiver.wait_for(number + 1)
        await broker.delete_subscription(QUEUE, "called")
    assert [(call.path, call.body) for call in receiver.calls] == [
        ("/0", b"0"),
        ("/1", b"1"),
        ("/2", b"2"),
    ]


@pytest.mark.parametrize("mode", ["deliver", "notify"])
async def test_what_another_server_makes_anew_under_the_same_name_is_called_too(
    receiver: Receiver, mode: Literal["deliver", "notify"]
) -> None:
    # Given a subscription that is called
    store = await open_store("memory:")
    async with Broker(store) as broker:
        await broker.create_queue(QUEUE)
        dispatcher = Dispatcher(broker, allowed=LOOPBACK, refresh_seconds=0.05)
        await dispatcher.start()
        old, new = (Callback(url=receiver.url(name), mode=mode) for name in ("old", "new"))
        await broker.create_subscription(QUEUE, "called", callback=old)
        await broker.publish(QUEUE, [b"a"])
        await receiver.wait_for(1)
        # When another server deletes it, and makes it again before this one looks
        other = Broker(store)
        await other.delete_subscription(QUEUE, "called")
        for _ in range(10):
            await asyncio.sleep(0)
        await other.create_subscription(QUEUE, "called", callback=new)
        await other.publish(QUEUE, [b"b"])
        # Then it is called
        calls = await receiver.wait_for(2)
        assert [call.path for call in calls] == ["/old", "/new"]
        await dispatcher.close()


async def test_a_change_of_one_queue_leaves_the_calls_for_another_alone(
    broker: Broker, receiver: Receiver
) -> None:
    # Given a queue with a callback, beside one that is altered and deleted
    await subscribe(broker, receiver.url())
    await broker.create_queue("other")
    await broker.alter_subscription("other", "default", callback=Callback(url=receiver.url("o")))
    await broker.publish("other", [b"o"])
    await receiver.wait_for(1)
    await broker.delete_queue("other")
    # When a message comes
    await broker.publish(QUEUE, [b"a"])
    # Then it is delivered
    assert [call.path for call in await receiver.wait_for(2)] == ["/o", "/hook"]


async def test_a_queue_that_is_deleted_takes_the_calls_for_its_dead_letters_with_it(
    broker: Broker, receiver: Receiver, dispatcher: Dispatcher
) -> None:
    letters = f"{QUEUE}-dlq"
    await broker.alter_queue(letters)
    await broker.alter_subscription(letters, "default", callback=Callback(url=receiver.url()))
    assert await is_called(dispatcher, letters, expected=True)
    await broker.delete_queue(QUEUE)
    assert not await is_called(dispatcher, letters, expected=False)


async def test_dead_letters_are_called_back_after_a_replay(
    broker: Broker, receiver: Receiver
) -> None:
    receiver.behave = answering(500)
    await subscribe(broker, receiver.url(), max_deliveries=1)
    await broker.publish(QUEUE, [b"a"])
    await dead_letters(broker, 1)
    receiver.behave = answering(200)
    assert await broker.replay(QUEUE) == 1
    await until_stats(broker, "called", lambda s: s.acked == 1)


# The circuit.


async def test_a_circuit_opens_after_repeated_failures_and_is_seen(
    broker: Broker, receiver: Receiver
) -> None:
    receiver.behave = answering(500, text="down")
    await subscribe(broker, receiver.url(), max_deliveries=None)
    await broker.publish(QUEUE, [b"a"] * 100)
    stats = await until_stats(
        broker, "called", lambda s: s.callback is not None and s.callback.circuit == "open"
    )
    assert stats.callback is not None
    assert stats.callback.failures_in_a_row >= 10
    assert stats.callback.last_error == "500 Internal Server Error: down"
    assert stats.callback.next_call_at is not None
    # And it closes again when a call comes through
    receiver.behave = answering(200)
    stats = await until_stats(broker, "called", lambda s: s.acked == 100)
    assert stats.callback is not None
    assert stats.callback.circuit == "closed"
    assert stats.callback.failures_in_a_row == 0


async def test_the_circuit_of_another_url_is_closed(
    broker: Broker, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given an endpoint that is not called for a long time, because it has failed so often
    for_long = functools.partial(Circuit, first_seconds=1000, most_seconds=1000)
    monkeypatch.setattr(record, "Circuit", for_long)
    receiver.behave = answering(500)
    slow = Backoff(base_seconds=100)
    await subscribe(broker, receiver.url("old"), max_deliveries=None, backoff=slow)
    await broker.publish(QUEUE, [b"a"] * 20)
    await until_stats(broker, "called", lambda s: bool(s.callback and s.callback.circuit == "open"))
    # When the subscription is given another one
    receiver.behave = answering(200)
    await broker.alter_subscription(QUEUE, "called", callback=Callback(url=receiver.url("new")))
    # Then that one is called at once, as often at a time as if nothing had happened
    stats = await until_stats(broker, "called", lambda s: s.acked > 0 and not s.ready)
    assert stats.callback is not None
    assert (stats.callback.circuit, stats.callback.failures_in_a_row) == ("closed", 0)


async def test_a_closed_dispatcher_calls_nobody(
    broker: Broker, receiver: Receiver, dispatcher: Dispatcher
) -> None:
    await subscribe(broker, receiver.url())
    await broker.publish(QUEUE, [b"a"])
    await until_stats(broker, "called", lambda s: s.acked == 1)
    await dispatcher.close()
    await broker.publish(QUEUE, [b"b"])
    again = Dispatcher(broker, allowed=())  # and loopback is not allowed here
    await again.start()
    stats = await until_stats(broker, "called", lambda s: s.nacked == 1)
    assert stats.callback is not None
    assert "127.0.0.1 is not public" in (stats.callback.last_error or "")
    await again.close()
    assert len(receiver.calls) == 1


# What was fetched, and then not called.


async def test_what_was_fetched_ahead_of_an_open_circuit_does_not_count_as_delivered(
    broker: Broker, receiver: Receiver
) -> None:
    # Given an endpoint that fails until its circuit opens, with messages that may fail only once
    receiver.behave = answering(500)
    await subscribe(broker, receiver.url(), max_deliveries=1, concurrency=4)
    await broker.publish(QUEUE, [b"x"] * 100)
    await until_stats(broker, "called", lambda s: bool(s.callback and s.callback.circuit == "open"))
    # Then only those that it was called for are dead letters
    stats = await until_stats(broker, "called", lambda s: not s.in_flight)
    assert stats.dead_lettered == len(receiver.calls) < 100
    assert stats.ready == 100 - len(receiver.calls)


async def test_what_was_under_way_at_the_end_comes_again_at_the_next_start(
    broker: Broker, receiver: Receiver, dispatcher: Dispatcher
) -> None:
    # Given calls that are not answered, and messages fetched ahead of them
    async def hang(call: Call) -> web.StreamResponse:
        await asyncio.sleep(3600)
        raise AssertionError

    receiver.behave = hang
    await subscribe(broker, receiver.url(), max_deliveries=1, concurrency=2)
    await broker.publish(QUEUE, [b"x"] * 10)
    await receiver.wait_for(2)
    # When the dispatcher ends
    await dispatcher.close(grace_seconds=0)
    # Then all of them are ready, and none has failed
    stats = await stats_of(broker, "called")
    assert (stats.ready, stats.in_flight, stats.dead_lettered) == (10, 0, 0)
