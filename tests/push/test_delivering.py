"""Mode ``deliver``: what is sent, and what each answer means."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from standardwebhooks import Webhook

from penstock import Backoff, Callback, NewMessage
from penstock.broker import Broker
from penstock.push import LOOPBACK, Dispatcher
from penstock.storage.wal.files import DiskFiles
from penstock.storage.wal.store import WalStore
from tests.contract.clock import ManualClock
from tests.push.conftest import QUEUE, dead_letters, stats_of, until_stats
from tests.push.receiver import Call, Receiver, answering

SOON = Backoff(base_seconds=0.001)

pytestmark = pytest.mark.usefixtures("dispatcher")


async def subscribe(broker: Broker, url: str, name: str = "called", **settings: Any) -> str:
    callback = {
        key: settings.pop(key)
        for key in ("concurrency", "timeout_seconds", "ordered", "cloudevents")
        if key in settings
    }
    secret = await broker.create_subscription(
        QUEUE,
        name,
        callback=Callback(url=url, **callback),
        **{"backoff": SOON, **settings},
    )
    assert secret is not None
    return secret


# What is sent.


async def test_a_message_is_posted_and_a_2xx_answer_is_its_ack(
    broker: Broker, receiver: Receiver
) -> None:
    # Given a subscription with a callback
    await subscribe(broker, receiver.url("in/box?a=b"))
    # When something is published
    await broker.publish(QUEUE, [NewMessage(body=b'{"n": 1}', content_type="application/json")])
    # Then it is called with the message as it is
    [call] = await receiver.wait_for(1)
    assert call.path == "/in/box"
    assert call.body == b'{"n": 1}'
    assert call.headers["Content-Type"] == "application/json"
    # And the message is done
    stats = await until_stats(broker, "called", lambda s: s.acked == 1)
    assert stats.in_flight == 0
    assert stats.callback is not None
    assert (stats.callback.calls, stats.callback.failures) == (1, 0)
    assert stats.callback.last_status == 204


async def test_headers_say_which_message_it_is(broker: Broker, receiver: Receiver) -> None:
    await subscribe(broker, receiver.url())
    message = NewMessage(
        body=b"x",
        topic="größe 100%",
        attributes={"color": "blue", "odd name": "a\r\nb: c", "empty": ""},
        group_key="g",
    )
    published = await broker.publish(QUEUE, [message])
    [call] = await receiver.wait_for(1)
    shown = {k.lower(): v for k, v in call.headers.items() if k.lower().startswith("penstock")}
    assert shown == {
        "penstock-queue": QUEUE,
        "penstock-subscription": "called",
        "penstock-index": "0",
        "penstock-deliveries": "1",
        "penstock-topic": "gr%C3%B6%C3%9Fe 100%25",
        "penstock-group-key": "g",
        "penstock-attribute-color": "blue",
        "penstock-attribute-odd%20name": "a%0D%0Ab: c",
        "penstock-attribute-empty": "",
    }
    assert call.headers["webhook-id"] == published[0].id


async def test_a_call_is_signed_so_that_others_libraries_can_verify_it(
    broker: Broker, receiver: Receiver
) -> None:
    secret = await subscribe(broker, receiver.url())
    await broker.publish(QUEUE, [b'{"n": 1}'])
    [call] = await receiver.wait_for(1)
    assert Webhook(secret).verify(call.body, dict(call.headers)) == {"n": 1}


async def test_after_a_rotation_both_secrets_verify(broker: Broker, receiver: Receiver) -> None:
    # Given a callback whose secret was changed twice
    oldest = await subscribe(broker, receiver.url())
    former = await broker.rotate_secret(QUEUE, "called")
    newest = await broker.rotate_secret(QUEUE, "called")
    # When it is called
    await broker.publish(QUEUE, [b"{}"])
    [call] = await receiver.wait_for(1)
    # Then the last two are good, and the one before is not
    for secret in (former, newest):
        Webhook(secret).verify(call.body, dict(call.headers))
    with pytest.raises(Exception, match="matching signature"):
        Webhook(oldest).verify(call.body, dict(call.headers))


async def test_the_id_stays_the_same_over_retries(broker: Broker, receiver: Receiver) -> None:
    receiver.behave = answering(500, 500, 200)
    await subscribe(broker, receiver.url())
    published = await broker.publish(QUEUE, [b"x"])
    calls = await receiver.wait_for(3)
    assert {call.headers["webhook-id"] for call in calls} == {published[0].id}
    assert [call.headers["Penstock-Deliveries"] for call in calls] == ["1", "2", "3"]
    await until_stats(broker, "called", lambda s: s.acked == 1)


async def test_cloudevents_headers_are_added_when_asked_for(
    broker: Broker, receiver: Receiver
) -> None:
    await subscribe(broker, receiver.url(), cloudevents=True)
    published = await broker.publish(QUEUE, [NewMessage(body=b"x", topic="order.made")])
    [call] = await receiver.wait_for(1)
    created = (await broker.get(QUEUE, published[0].id)).created_at
    shown = {k: v for k, v in call.headers.items() if k.startswith("ce-")}
    assert shown == {
        "ce-specversion": "1.0",
        "ce-id": published[0].id,
        "ce-source": "/queues/jobs",
        "ce-type": "order.made",
        "ce-time": created.isoformat().replace("+00:00", "Z"),
    }


# What an answer means.


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
async def test_every_2xx_is_an_ack(broker: Broker, receiver: Receiver, status: int) -> None:
    receiver.behave = answering(status)
    await subscribe(broker, receiver.url())
    await broker.publish(QUEUE, [b"x"])
    await until_stats(broker, "called", lambda s: s.acked == 1)


@pytest.mark.parametrize("status", [400, 401, 404, 422, 500, 502, 504])
async def test_what_fails_too_often_is_a_dead_letter_with_the_last_answer(
    broker: Broker, receiver: Receiver, status: int
) -> None:
    receiver.behave = answering(status, text="no\x00 such\nthing " + "é" * 4000)
    await subscribe(broker, receiver.url(), max_deliveries=2)
    await broker.publish(QUEUE, [b"x"])
    [letter] = await dead_letters(broker, 1)
    assert letter.dead_letter is not None
    assert letter.dead_letter.deliveries == 2
    assert letter.dead_letter.reason.startswith(f"{status} ")
    assert "no such thing é" in letter.dead_letter.reason
    assert len(receiver.calls) == 2


async def test_a_refused_connection_is_a_failure_with_its_reason(broker: Broker) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        await subscribe(broker, f"http://127.0.0.1:{unused.getsockname()[1]}/", max_deliveries=1)
        await broker.publish(QUEUE, [b"x"])
        [letter] = await dead_letters(broker, 1)
    assert letter.dead_letter is not None
    assert letter.dead_letter.reason.startswith("no connection: ")


async def test_no_answer_in_time_is_a_failure_with_its_reason(
    broker: Broker, receiver: Receiver
) -> None:
    async def hang(call: Call) -> web.StreamResponse:
        await asyncio.sleep(3600)
        raise AssertionError

    receiver.behave = hang
    await subscribe(broker, receiver.url(), max_deliveries=1, timeout_seconds=0.05)
    await broker.publish(QUEUE, [b"x"])
    [letter] = await dead_letters(broker, 1)
    assert letter.dead_letter is not None
    assert letter.dead_letter.reason == "no answer within 0.05 seconds"


async def test_a_redirect_is_not_followed(broker: Broker, receiver: Receiver) -> None:
    async def redirect(call: Call) -> web.StreamResponse:
        return web.Response(status=302, headers={"Location": receiver.url("secret")})

    receiver.behave = redirect
    await subscribe(broker, receiver.url(), max_deliveries=1)
    await broker.publish(QUEUE, [b"x"])
    [letter] = await dead_letters(broker, 1)
    assert letter.dead_letter is not None
    assert "redirects are not followed" in letter.dead_letter.reason
    assert [call.path for call in receiver.calls] == ["/hook"]


async def test_410_pauses_the_subscription_until_it_is_resumed(
    broker: Broker, receiver: Receiver
) -> None:
    # Given an endpoint that says it is gone
    receiver.behave = answering(410)
    await subscribe(broker, receiver.url())
    await broker.publish(QUEUE, [b"x"])
    # Then nothing more is delivered
    stats = await until_stats(broker, "called", lambda s: s.config.paused and not s.in_flight)
    assert stats.callback is not None
    assert stats.callback.last_status == 410
    assert len(receiver.calls) == 1
    # And when it is resumed, the message comes
    receiver.behave = answering(200)
    await broker.resume(QUEUE, "called")
    await until_stats(broker, "called", lambda s: s.acked == 1)


@pytest.mark.parametrize("by", ["410", "an operator"])
async def test_a_paused_subscription_makes_no_more_calls_not_even_of_what_was_fetched(
    broker: Broker, receiver: Receiver, by: str
) -> None:
    # Given calls under way, and more that was fetched ahead of them
    paused = asyncio.Event()

    async def gone(call: Call) -> web.StreamResponse:
        if by == "an operator":
            await paused.wait()
            return web.Response()
        return web.Response(status=410)

    receiver.behave = gone
    await subscribe(broker, receiver.url(), concurrency=4, max_deliveries=2)
    await broker.publish(QUEUE, [b"%d" % number for number in range(50)])
    await receiver.wait_for(4)
    # When it is paused
    if by == "an operator":
        await broker.pause(QUEUE, "called")
        paused.set()
    stats = await until_stats(
        broker, "called", lambda s: s.config.paused and s.in_flight == 0 and not s.delayed
    )
    # Then those are the last, and all that was not called is as if it had never been fetched
    assert len(receiver.calls) == 4
    assert stats.acked == (4 if by == "an operator" else 0)
    assert (stats.dead_lettered, stats.delivered - stats.returned) == (0, 4)
    # And when it is resumed everything comes
    receiver.behave = answering(200)
    await broker.resume(QUEUE, "called")
    await until_stats(broker, "called", lambda s: s.acked == 50)


@pytest.mark.parametrize("status", [429, 503])
async def test_retry_after_puts_off_the_whole_subscription(
    broker: Broker, receiver: Receiver, status: int
) -> None:
    # Given an endpoint that asks for an hour
    async def busy(call: Call) -> web.StreamResponse:
        return web.Response(status=status, headers={"Retry-After": "3000"})

    receiver.behave = busy
    await subscribe(broker, receiver.url(), concurrency=1)
    # When two messages come
    await broker.publish(QUEUE, [b"a", b"b"])
    # Then the first one waits for that long, the other one is not tried, and the circuit is closed
    stats = await until_stats(broker, "called", lambda s: s.delayed == 1)
    assert stats.callback is not None
    assert stats.callback.circuit == "closed"
    assert stats.callback.next_call_at is not None
    assert len(receiver.calls) == 1


async def test_without_retry_after_the_backoff_decides(broker: Broker, receiver: Receiver) -> None:
    receiver.behave = answering(503, 429, 200)
    await subscribe(broker, receiver.url())
    await broker.publish(QUEUE, [b"a"])
    await until_stats(broker, "called", lambda s: s.acked == 1)


# Order, dependencies, bounds.


async def test_an_ordered_callback_retries_a_message_before_any_later_one(
    broker: Broker, receiver: Receiver
) -> None:
    receiver.behave = answering(500, 200, 500, 500, 200)
    await subscribe(broker, receiver.url(), ordered=True)
    await broker.publish(QUEUE, [b"a", b"b", b"c"])
    calls = await receiver.wait_for(6)
    assert [call.body for call in calls] == [b"a", b"a", b"b", b"b", b"b", b"c"]


async def test_an_ordered_callback_keeps_order_and_backoff_over_a_restart(
    tmp_path: Path, receiver: Receiver
) -> None:
    # Given an ordered callback whose first message failed, and a server that goes down
    clock = ManualClock()
    receiver.behave = answering(500, 200)

    @asynccontextmanager
    async def life() -> AsyncIterator[tuple[Broker, WalStore]]:
        store = await WalStore.open(DiskFiles(tmp_path), clock=clock)
        async with Broker(store) as broker:
            dispatcher = Dispatcher(broker, allowed=LOOPBACK)
            await dispatcher.start()
            yield broker, store
            await dispatcher.close(grace_seconds=0)

    async with life() as (broker, _):
        await broker.create_queue(QUEUE)
        await subscribe(broker, receiver.url(), ordered=True, backoff=Backoff(base_seconds=3600))
        await broker.publish(QUEUE, [b"a", b"b"])
        await until_stats(broker, "called", lambda stats: stats.delayed == 1)
    # When it is back, and goes on with others
    async with life() as (broker, store):
        await subscribe(broker, receiver.url(), "other")
        await broker.publish(QUEUE, [b"c"])
        await until_stats(broker, "other", lambda stats: stats.acked == 1)
        # Then the failed one is not called before its time, nor is any later one
        stats = await stats_of(broker, "called")
        assert (stats.delayed, stats.ready, stats.in_flight) == (1, 2, 0)
        assert [c.body for c in receiver.calls if c.subscription == "called"] == [b"a"]
        # And when the time has come, all of them are, in order
        clock.advance(3600)
        await store.tick()
        await until_stats(broker, "called", lambda stats: stats.acked == 3)
        called = [c.body for c in receiver.calls if c.subscription == "called"]
        assert called == [b"a", b"a", b"b", b"c"]


async def test_a_message_that_an_ordered_callback_never_takes_makes_way(
    broker: Broker, receiver: Receiver
) -> None:
    receiver.behave = answering(500, 500, 200)
    await subscribe(broker, receiver.url(), ordered=True, max_deliveries=2)
    await broker.publish(QUEUE, [b"a", b"b"])
    calls = await receiver.wait_for(3)
    assert [call.body for call in calls] == [b"a", b"a", b"b"]
    assert len(await dead_letters(broker, 1)) == 1


async def test_a_fifo_queue_keeps_order_within_a_group(broker: Broker, receiver: Receiver) -> None:
    # Given a group whose first message fails twice
    async def fail_first(call: Call) -> web.StreamResponse:
        failures = sum(earlier.body == b"a1" for earlier in receiver.calls)
        return web.Response(status=500 if call.body == b"a1" and failures < 3 else 200)

    receiver.behave = fail_first
    await broker.create_queue("groups", fifo=True)
    await broker.create_subscription(
        "groups", "called", callback=Callback(url=receiver.url()), backoff=SOON
    )
    # When two groups are published
    await broker.publish(
        "groups", [NewMessage(body=b, group_key=b[:1].decode()) for b in (b"a1", b"a2", b"b1")]
    )
    # Then the second of the group waits for the first, and the other group does not
    calls = await receiver.wait_for(5)
    assert [c.body for c in calls if c.body[:1] == b"a"] == [b"a1", b"a1", b"a1", b"a2"]
    assert [c.body for c in calls if c.body[:1] == b"b"] == [b"b1"]


async def test_a_callback_waits_for_those_that_it_comes_after(
    broker: Broker, receiver: Receiver
) -> None:
    # Given C after A and B, and an A that fails once
    async def fail_once(call: Call) -> web.StreamResponse:
        tries = sum(earlier.path == call.path for earlier in receiver.calls)
        return web.Response(status=500 if call.path == "/A" and tries == 1 else 200)

    receiver.behave = fail_once
    for name, after in (("A", []), ("B", []), ("C", ["A", "B"])):
        await subscribe(broker, receiver.url(name), name, after=after)
    await broker.publish(QUEUE, [b"x"])
    # Then C is called last
    calls = await receiver.until(lambda calls: any(call.path == "/C" for call in calls))
    paths = [call.path for call in calls]
    assert paths.index("/C") == 3
    assert sorted(paths[:3]) == ["/A", "/A", "/B"]


async def test_no_more_calls_at_once_than_the_subscription_allows(
    broker: Broker, receiver: Receiver
) -> None:
    # Given an endpoint that answers nobody until three are there
    there, most = 0, 0
    gate = asyncio.Event()

    async def hold(call: Call) -> web.StreamResponse:
        nonlocal there, most
        there += 1
        most = max(most, there)
        if there == 3:
            gate.set()
        await gate.wait()
        there -= 1
        return web.Response()

    receiver.behave = hold
    await subscribe(broker, receiver.url(), concurrency=3)
    await broker.publish(QUEUE, [b"x"] * 20)
    await until_stats(broker, "called", lambda s: s.acked == 20)
    assert most == 3


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
