"""Mode ``deliver``: what is sent, and what each answer means."""

from __future__ import annotations

import asyncio
import socket

import pytest
from aiohttp import web
from standardwebhooks import Webhook

from penstock import Callback, NewMessage
from penstock.broker import Broker
from tests.push.conftest import QUEUE, dead_letters, subscribe, until_stats
from tests.push.receiver import Call, Receiver, answering

pytestmark = pytest.mark.usefixtures("dispatcher")


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


async def test_another_url_does_not_wait_for_what_the_former_one_asked(
    broker: Broker, receiver: Receiver
) -> None:
    # Given an endpoint that asks for an hour
    async def busy(call: Call) -> web.StreamResponse:
        return web.Response(status=503, headers={"Retry-After": "3000"})

    receiver.behave = busy
    await subscribe(broker, receiver.url("old"), concurrency=1)
    await broker.publish(QUEUE, [b"a", b"b"])
    await until_stats(broker, "called", lambda s: s.delayed == 1)
    # When the subscription is given another one
    receiver.behave = answering(200)
    await broker.alter_subscription(QUEUE, "called", callback=Callback(url=receiver.url("new")))
    # Then that is called for what the former one was not called for
    stats = await until_stats(broker, "called", lambda s: s.acked == 1)
    assert [call.path for call in receiver.calls] == ["/old", "/new"]
    assert stats.callback is not None
    assert (stats.callback.calls, stats.callback.next_call_at) == (2, None)


@pytest.mark.parametrize(
    ("status", "headers"),
    [(503, {"Retry-After": "3000"}), (429, {"Retry-After": "3000"}), (410, {})],
)
async def test_what_the_former_url_answers_later_counts_for_it_alone(
    broker: Broker, receiver: Receiver, status: int, headers: dict[str, str]
) -> None:
    # Given a call that is under way
    may_answer = asyncio.Event()

    async def behave(call: Call) -> web.StreamResponse:
        if call.path == "/new":
            return web.Response(status=200)
        await may_answer.wait()
        return web.Response(status=status, headers=headers)

    receiver.behave = behave
    await subscribe(broker, receiver.url("old"), max_deliveries=None)
    await broker.publish(QUEUE, [b"a"])
    await receiver.wait_for(1)
    # When the subscription is given another URL, and then the former one answers
    await broker.alter_subscription(QUEUE, "called", callback=Callback(url=receiver.url("new")))
    await broker.publish(QUEUE, [b"b"])
    await receiver.wait_for(2)
    may_answer.set()
    await until_stats(broker, "called", lambda s: bool(s.callback and s.callback.failures == 1))
    # Then the new one is called all the same
    await broker.publish(QUEUE, [b"c"])
    stats = await until_stats(broker, "called", lambda s: s.acked >= 2)
    assert stats.callback is not None
    assert (stats.callback.next_call_at, stats.callback.failures_in_a_row) == (None, 0)
    assert not stats.config.paused


async def test_without_retry_after_the_backoff_decides(broker: Broker, receiver: Receiver) -> None:
    receiver.behave = answering(503, 429, 200)
    await subscribe(broker, receiver.url())
    await broker.publish(QUEUE, [b"a"])
    await until_stats(broker, "called", lambda s: s.acked == 1)
