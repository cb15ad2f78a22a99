"""The document's flows from end to end: consumers that listen, and are called."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from standardwebhooks import Webhook

from penstock.core.retry import Backoff
from penstock.core.stats import SubscriptionStats
from penstock.push import LOOPBACK, Dispatcher
from tests.http.api.world import QUEUE, Person, World, world

_WAIT_SECONDS = 20


class Calls:
    """All calls in the order in which they came: who was called, and with what."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any]] = []
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.url = ""
        self.answers: dict[str, Callable[[Any], int]] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self._changed = asyncio.Condition()

    async def take(self, request: web.Request) -> web.Response:
        who, body = request.path.strip("/"), await request.read()
        content = json.loads(body)
        async with self._changed:
            self.seen.append((who, content))
            self.requests.append((dict(request.headers), body))
            self._changed.notify_all()
        if who in self.gates:
            await self.gates[who].wait()
        status = self.answers.get(who, lambda _: 200)(content)
        return web.Response(status=status, text=f"said {status}")

    async def wait_for(self, count: int) -> list[tuple[str, Any]]:
        async with asyncio.timeout(_WAIT_SECONDS), self._changed:
            await self._changed.wait_for(lambda: len(self.seen) >= count)
        return self.seen


@asynccontextmanager
async def listening() -> AsyncIterator[Calls]:
    calls = Calls()
    app = web.Application()
    app.router.add_post("/{who}", calls.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    # As the document writes it, without a scheme
    calls.url = "{}:{}".format(*runner.addresses[0])
    try:
        yield calls
    finally:
        await runner.cleanup()


@asynccontextmanager
async def calling(api: World, **settings: Any) -> AsyncIterator[None]:
    dispatcher = Dispatcher(api.broker, allowed=LOOPBACK, **settings)
    await dispatcher.start()
    try:
        yield
    finally:
        await dispatcher.close()


@pytest.fixture
async def calls() -> AsyncIterator[Calls]:
    async with listening() as calls:
        yield calls


async def subscribe(api: World, calls: Calls, person: Person, topic: str = "sql") -> str:
    """Called by the first part of its e-mail address; again soon after a failure."""
    who = person.email.partition("@")[0]
    name = await api.subscribe(person, topic, callback_url=f"{calls.url}/{who}")
    await api.broker.alter_subscription(QUEUE, name, backoff=Backoff(base_seconds=0.001))
    return name


async def until(api: World, is_so: Callable[[SubscriptionStats], bool]) -> None:
    """Of every subscription."""
    async with asyncio.timeout(_WAIT_SECONDS):
        # Nothing tells of an ack but the figures.
        while not all(map(is_so, (await api.broker.queue_stats(QUEUE)).subscriptions)):  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def settled(api: World) -> None:
    """Until nothing is left to deliver."""
    await until(api, lambda one: not one.ready + one.in_flight + one.delayed + one.held)


async def test_from_registration_to_the_call(api: World, calls: Calls) -> None:
    # Given somebody who registers, logs in and subscribes as the document shows
    async with calling(api):
        user = {"name": "prem", "email": "prem@gmail.com", "password": "prem", "role": "user"}
        assert (await api.post("/api/users/create", user)).json["success"] is True
        login = {"email": "prem@gmail.com", "password": "prem"}
        token = (await api.post("/auth/local", login)).json["token"]
        value = {"topic": "sql", "callback_url": f"{calls.url}/consume"}
        subscribed = await api.post("/api/consumers/subscribe", value, token)
        # When something is published
        await api.post("/api/producers/publish", {"topic": "sql", "content": "mysql"}, token)
        await api.post("/api/producers/publish", {"topic": "nosql", "content": "redis"}, token)
        # Then the URL is called with it, signed, and with nothing else
        assert await calls.wait_for(1) == [("consume", "mysql")]
        await settled(api)
    assert len(calls.seen) == 1
    [(headers, body)] = calls.requests
    assert headers["Penstock-Topic"] == "sql"
    assert headers["Content-Type"] == "application/json"
    lowered = {name.lower(): value for name, value in headers.items()}
    assert Webhook(subscribed.json["secret"]).verify(body, lowered) == "mysql"


async def test_a_failed_call_is_tried_again(api: World, calls: Calls) -> None:
    statuses = iter([500, 503, 200])
    calls.answers["a"] = lambda _: next(statuses)
    async with calling(api):
        await subscribe(api, calls, await api.person("a"))
        await api.publish(1)
        assert await calls.wait_for(3) == [("a", 1)] * 3
        await settled(api)
    assert len(calls.seen) == 3
    ids = {headers["webhook-id"] for headers, _ in calls.requests}
    assert len(ids) == 1


async def test_after_the_retries_it_is_a_dead_letter_that_an_admin_sees_and_replays(
    calls: Calls,
) -> None:
    is_well = False
    calls.answers["a"] = lambda _: 200 if is_well else 500
    async with world(topics_retries=2) as api, calling(api):
        await subscribe(api, calls, await api.person("a"))
        await api.publish({"n": 1})
        await calls.wait_for(3)
        await settled(api)
        assert len(calls.seen) == 3
        # It says how often and with what answer it failed
        admin = await api.admin()
        path = f"/v1/queues/{QUEUE}/dead-letters"
        [letter] = (await api.app.ask("GET", path, authorization=admin)).json["messages"]
        assert letter["dead_letter"]["deliveries"] == 3
        assert letter["dead_letter"]["reason"] == "500 Internal Server Error: said 500"
        # When the consumer is well again and it is replayed, then it is called once more
        is_well = True
        assert (await api.post(f"{path}/replay", {}, admin)).status == 200
        await calls.wait_for(4)
        await settled(api)
        assert (await api.broker.queue_stats(QUEUE)).dead_letters == 0


async def test_c_is_called_once_a_and_b_have_answered(api: World, calls: Calls) -> None:
    a, b, c = [await api.person(name) for name in "abc"]
    calls.gates["b"] = asyncio.Event()
    async with calling(api):
        await api.wait_for(c, a, b)
        for person in (c, b, a):
            await subscribe(api, calls, person)
        # Given B at work on a message
        await api.publish(1)
        await calls.wait_for(2)
        # Then C gets what is not B's
        await subscribe(api, calls, c, "nosql")
        await api.publish(2, "nosql")
        assert (await calls.wait_for(3))[2] == ("c", 2)
        # But that message only when B is done
        calls.gates["b"].set()
        assert (await calls.wait_for(4))[3] == ("c", 1)
        await settled(api)
    assert sorted(calls.seen[:2]) == [("a", 1), ("b", 1)]


async def test_a_failing_parent_holds_a_message_back_until_it_took_it(
    api: World, calls: Calls
) -> None:
    a, c = await api.person("a"), await api.person("c")
    attempts = {1: iter([500, 500, 200]), 2: iter([200])}
    calls.answers["a"] = lambda content: next(attempts[content])
    async with calling(api):
        await api.wait_for(c, a)
        for person in (a, c):
            await subscribe(api, calls, person)
        await api.publish(1)
        await api.publish(2)
        await calls.wait_for(6)
        await settled(api)
    seen = calls.seen
    assert seen.index(("c", 1)) > max(at for at, call in enumerate(seen) if call == ("a", 1))
    assert seen.index(("c", 2)) > seen.index(("a", 2))
    assert len(seen) == 6


async def test_a_message_whose_worker_died_is_called_when_the_lock_has_expired(
    api: World, calls: Calls
) -> None:
    name = await subscribe(api, calls, await api.person("a"))
    await api.publish(1)
    # Given a worker that took it, and is never heard of again
    [taken] = await api.broker.receive(QUEUE, subscription=name, lease_seconds=0.2)
    async with calling(api):
        assert await calls.wait_for(1) == [("a", 1)]
        await settled(api)
    [(headers, _)] = calls.requests
    assert headers["webhook-id"] == taken.id
    assert headers["Penstock-Deliveries"] == "2"


async def test_one_worker_calls_in_the_order_of_publishing_through_failures(calls: Calls) -> None:
    failures = iter([True, False, True, False])
    calls.answers["a"] = lambda content: 500 if content in (2, 4) and next(failures) else 200
    async with world(topics_workers=1) as api, calling(api):
        name = await api.subscribe(await api.person("a"), callback_url=f"{calls.url}/a")
        backoff = Backoff(base_seconds=0.001)
        await api.broker.alter_subscription(QUEUE, name, backoff=backoff)
        for number in range(1, 6):
            await api.publish(number)
        await calls.wait_for(7)
        await settled(api)
    assert [content for _, content in calls.seen] == [1, 2, 2, 3, 4, 4, 5]


async def test_a_consumer_that_is_gone_is_paused_until_it_subscribes_again(
    api: World, calls: Calls
) -> None:
    calls.answers["a"] = lambda _: 410
    a = await api.person("a")
    async with calling(api):
        name = await subscribe(api, calls, a)
        await api.publish(1)
        await calls.wait_for(1)
        await until(api, lambda one: one.config.paused)
        del calls.answers["a"]
        assert await subscribe(api, calls, a) == name
        await calls.wait_for(2)
        await settled(api)
