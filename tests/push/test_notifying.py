"""Mode ``notify``: subscribers are told that there is something, and come for it themselves."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web
from standardwebhooks import Webhook

from penstock import Callback, NewMessage
from penstock.broker import Broker
from penstock.clock import SystemClock
from penstock.core.message import to_datetime
from penstock.push import LOOPBACK, Dispatcher, notifier
from tests.push.conftest import QUEUE, stats_of, until_stats
from tests.push.receiver import Call, Receiver, answering


async def subscribe(broker: Broker, receiver: Receiver, name: str = "told") -> str:
    callback = Callback(url=receiver.url(name), mode="notify")
    made = await broker.create_subscription(QUEUE, name, callback=callback)
    assert made.secret is not None
    return made.secret


@pytest.mark.usefixtures("dispatcher")
async def test_a_subscriber_is_told_the_lowest_unacked_index_after_a_publish(
    broker: Broker, receiver: Receiver
) -> None:
    # Given a subscriber that has acked the first of two messages
    secret = await subscribe(broker, receiver)
    await broker.publish(QUEUE, [b"a", b"b"])
    [first] = await receiver.wait_for(1)
    assert first.json == {
        "queue": QUEUE,
        "subscription": "told",
        "lowest_unacked_index": 0,
        "ready": 2,
    }
    received = await broker.receive(QUEUE, subscription="told")
    await broker.ack(QUEUE, received, "told")
    # When another one is published
    await broker.publish(QUEUE, [b"c"])
    # Then it is told so, signed
    _, second = await receiver.wait_for(2)
    assert (second.json["lowest_unacked_index"], second.json["ready"]) == (1, 2)
    assert Webhook(secret).verify(second.body, dict(second.headers)) == second.json
    assert second.headers["Content-Type"] == "application/json"
    # And nothing was taken from it
    stats = await stats_of(broker, "told")
    assert (stats.ready, stats.in_flight, stats.delivered) == (2, 0, 1)


@pytest.mark.usefixtures("dispatcher")
async def test_a_burst_is_one_call(broker: Broker, receiver: Receiver) -> None:
    await subscribe(broker, receiver)
    await asyncio.gather(*(broker.publish(QUEUE, [b"x"] * 10) for _ in range(50)))
    calls = await receiver.wait_for(1)
    assert calls[0].json["ready"] == 500
    # One more tells of what comes after it, and of nothing in between
    await broker.publish(QUEUE, [b"y"])
    calls = await receiver.wait_for(2)
    assert calls[1].json["ready"] == 501


@pytest.mark.usefixtures("dispatcher")
async def test_publishes_one_after_the_other_are_a_burst_too(
    broker: Broker, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a first message that waits for others; here for as long as they may take
    monkeypatch.setattr(notifier, "_LINGER_SECONDS", 0.5)
    await subscribe(broker, receiver)
    for _ in range(20):
        await broker.publish(QUEUE, [b"x"])
    [call] = await receiver.wait_for(1)
    assert call.json["ready"] == 20


@pytest.mark.usefixtures("dispatcher")
async def test_nobody_is_called_while_there_is_nothing_to_receive(
    broker: Broker, receiver: Receiver
) -> None:
    # Given one subscriber, whose only message has a delay, and another that has something at once
    await broker.create_subscription(
        QUEUE,
        "told",
        filter='topic == "late"',
        callback=Callback(url=receiver.url("told"), mode="notify"),
    )
    late = datetime(2100, 1, 1, tzinfo=UTC)
    await broker.publish(QUEUE, [NewMessage(body=b"x", topic="late", not_before=late)])
    await subscribe(broker, receiver, "other")
    await broker.publish(QUEUE, [b"y"])
    # Then only the other is told, and later still
    await receiver.wait_for(1)
    await broker.publish(QUEUE, [b"z"])
    calls = await receiver.wait_for(2)
    assert {call.path for call in calls} == {"/other"}


@pytest.mark.usefixtures("dispatcher")
@pytest.mark.parametrize("status", [410, 429, 500, 302])
async def test_the_answer_is_ignored(broker: Broker, receiver: Receiver, status: int) -> None:
    receiver.behave = answering(status)
    await subscribe(broker, receiver)
    await broker.publish(QUEUE, [b"a"])
    await receiver.wait_for(1)
    await broker.publish(QUEUE, [b"b"])
    await receiver.wait_for(2)
    stats = await until_stats(broker, "told", lambda s: bool(s.callback and s.callback.calls))
    assert not stats.config.paused
    assert stats.callback is not None
    assert (stats.callback.failures, stats.callback.circuit) == (0, "closed")


@pytest.mark.usefixtures("dispatcher")
async def test_one_that_hangs_holds_up_no_other(broker: Broker, receiver: Receiver) -> None:
    async def hang(call: Call) -> web.StreamResponse:
        if call.path == "/dead":
            await asyncio.sleep(3600)
        return web.Response()

    receiver.behave = hang
    await subscribe(broker, receiver, "dead")
    await subscribe(broker, receiver, "alive")
    await broker.publish(QUEUE, [b"a"])
    await receiver.wait_for(2)
    await broker.publish(QUEUE, [b"b"])
    calls = await receiver.wait_for(3)
    assert [call.path for call in calls].count("/alive") == 2


@pytest.mark.usefixtures("dispatcher")
async def test_a_message_that_waits_for_others_is_told_of_when_they_have_it(
    broker: Broker, receiver: Receiver
) -> None:
    callback = Callback(url=receiver.url(), mode="notify")
    await broker.create_subscription(QUEUE, "after", after=["default"], callback=callback)
    await broker.publish(QUEUE, [b"a"])
    await broker.ack(QUEUE, await broker.receive(QUEUE))
    [call] = await receiver.wait_for(1)
    assert call.json["ready"] == 1


@pytest.mark.usefixtures("dispatcher")
async def test_a_message_with_a_delay_is_told_of_when_its_time_has_come(
    broker: Broker, receiver: Receiver
) -> None:
    await subscribe(broker, receiver)
    soon = to_datetime(SystemClock().now_ns()) + timedelta(seconds=0.5)
    await broker.publish(QUEUE, [NewMessage(body=b"a", not_before=soon)])
    [call] = await receiver.wait_for(1)
    assert call.json["ready"] == 1
    # And again when the wait after a nack is over
    deliveries = await broker.receive(QUEUE, subscription="told")
    await broker.nack(QUEUE, deliveries, "told", delay_seconds=0.5)
    _, call = await receiver.wait_for(2)
    assert call.json["ready"] == 1


@pytest.mark.usefixtures("dispatcher")
async def test_a_paused_subscription_is_told_nothing_until_it_is_resumed(
    broker: Broker, receiver: Receiver
) -> None:
    await subscribe(broker, receiver, "paused")
    await subscribe(broker, receiver, "other")
    await broker.pause(QUEUE, "paused")
    await broker.publish(QUEUE, [b"a"])
    [call] = await receiver.wait_for(1)
    assert call.path == "/other"
    await broker.resume(QUEUE, "paused")
    calls = await receiver.wait_for(2)
    assert calls[1].path == "/paused"


async def test_after_a_restart_it_is_told_again_of_what_is_there(
    broker: Broker, receiver: Receiver
) -> None:
    await subscribe(broker, receiver)
    await broker.publish(QUEUE, [b"a"])
    dispatcher = Dispatcher(broker, allowed=LOOPBACK)
    await dispatcher.start()
    [call] = await receiver.wait_for(1)
    assert call.json["ready"] == 1
    await dispatcher.close()


@pytest.mark.usefixtures("dispatcher")
async def test_another_url_is_told_of_what_is_there(broker: Broker, receiver: Receiver) -> None:
    await subscribe(broker, receiver)
    await broker.publish(QUEUE, [b"a"])
    await receiver.wait_for(1)
    other = Callback(url=receiver.url("other"), mode="notify")
    await broker.alter_subscription(QUEUE, "told", callback=other)
    calls = await receiver.wait_for(2)
    assert [call.path for call in calls] == ["/told", "/other"]


@pytest.mark.usefixtures("dispatcher")
async def test_it_may_change_to_being_delivered_to(broker: Broker, receiver: Receiver) -> None:
    await subscribe(broker, receiver)
    await broker.publish(QUEUE, [b"a"])
    await receiver.wait_for(1)
    await broker.alter_subscription(QUEUE, "told", callback=Callback(url=receiver.url("now")))
    calls = await receiver.wait_for(2)
    assert (calls[1].path, calls[1].body) == ("/now", b"a")
    await until_stats(broker, "told", lambda s: s.acked == 1)
