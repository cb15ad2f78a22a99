"""A node of a cluster is away when a server starts, or while it runs: the others go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from penstock.broker import Broker
from penstock.core.callback import Callback
from penstock.errors import StoreUnavailable
from penstock.http.auth import passwords
from penstock.storage.redis.store import RedisStore
from tests.contract.clock import ManualClock
from tests.http.api.world import QUEUE, World
from tests.http.client import Answer, basic
from tests.http.in_process import application
from tests.redis.test_cluster import elsewhere
from tests.redis_cluster import cluster_url, node_of, prefix_with, remove_cluster_keys
from tests.redis_server import standing_still, unique_prefix, with_prefix

_SECONDS = 30
# How long a node is waited for here; it is 5 seconds otherwise.
_PATIENCE_SECONDS = 1.0
_HOOK = Callback(url="https://a.example/hook")
# Other servers may have replaced the default ones, so these are no use to one that cannot look.
_OWN = {"user_password": "of-the-user", "admin_password": "of-the-admin"}

Open = Callable[[], Awaitable[RedisStore]]


class Cluster:
    """Its queue `away` is on a node that may be; `here` is not."""

    def __init__(self, prefix: str, stack: AsyncExitStack) -> None:
        self.here = elsewhere(node_of("away"), "here")
        self.node = f"127.0.0.1:{node_of('away')}"
        self.clock = ManualClock()
        self._url = with_prefix(cluster_url(), prefix)
        self._stack = stack

    async def open(self) -> RedisStore:
        """A server of its own."""
        store = await RedisStore.open(
            self._url, clock=self.clock, timeout_seconds=_PATIENCE_SECONDS
        )
        self._stack.push_async_callback(store.close)
        return store

    async def open_world(self, **settings: Any) -> World:
        broker = Broker(await self.open())
        app = await self._stack.enter_async_context(application(broker, **settings))
        return World(app, broker)

    async def make_queues(self) -> None:
        """Each with a message and with somebody who is called."""
        broker = Broker(await self.open())
        for queue in ("away", self.here):
            await broker.create_queue(queue)
            await broker.publish(queue, [b"a"])
            await broker.create_subscription(queue, "called", callback=_HOOK)

    @contextmanager
    def without_node(self) -> Iterator[None]:
        with standing_still(f"redis://{self.node}"):
            yield


@pytest_asyncio.fixture
async def make_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Callable[..., Cluster]]:
    """With the keys that are no queue's on the node, or elsewhere."""
    monkeypatch.setattr(passwords, "ROUNDS", 4)
    cluster_url()
    prefixes = []
    async with AsyncExitStack() as stack:

        def make(**keys: bool) -> Cluster:
            places = {"list": False, "users": False, "tokens": False} | keys
            prefixes.append(prefix_with(unique_prefix(tmp_path), **places))
            return Cluster(prefixes[-1], stack)

        yield make
    for prefix in prefixes:
        remove_cluster_keys(prefix)


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(_SECONDS):
        while True:
            with suppress(StoreUnavailable):
                if await is_so():
                    return
            await asyncio.sleep(0.02)


def figures(answer: Answer) -> dict[str, float]:
    assert answer.status == 200, answer.body
    lines = answer.body.decode().splitlines()
    pairs = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
    return {name: float(value) for name, value in pairs}


async def test_a_server_starts_without_a_node_and_takes_it_in_when_it_is_back(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = make_cluster()
    await cluster.make_queues()
    with cluster.without_node():
        # When a server starts while a node stands still
        store = await cluster.open()
        broker = Broker(store)
        # Then it serves the queues of the others, and calls those it can look up
        assert [one.body for one in await broker.receive(cluster.here)] == [b"a"]
        await broker.publish(cluster.here, [b"b"])
        assert [one.queue for one in await broker.callbacks()] == [cluster.here]
        # And what time brings about comes there
        cluster.clock.advance(60)
        with pytest.raises(StoreUnavailable, match=cluster.node):
            await store.tick()
        stats = await broker.queue_stats(cluster.here)
        assert stats.subscriptions[0].leases_expired + stats.subscriptions[1].leases_expired == 1
        # And those of the node are refused, by its name
        with pytest.raises(StoreUnavailable, match=f"{cluster.node} does not answer"):
            await broker.receive("away")
    # And when the node goes on, nothing is left out any more
    await until(lambda: _is_whole(store))
    assert [one.queue for one in await broker.callbacks()] == ["away", cluster.here]
    assert [one.body for one in await broker.receive("away")] == [b"a"]
    assert broker.services == dict.fromkeys(broker.services)


async def _is_whole(store: RedisStore) -> bool:
    await store.tick()
    return not any(store.services.values())


async def test_a_node_that_would_evict_queues_is_found_out_when_it_is_back(
    make_cluster: Callable[..., Cluster], caplog: pytest.LogCaptureFixture
) -> None:
    cluster = make_cluster()
    async with Redis.from_url(f"redis://{cluster.node}") as redis:
        await redis.config_set("maxmemory-policy", "allkeys-lru")
        try:
            # Given a server that could not ask it at the start, which would have been its end
            with cluster.without_node():
                store = await cluster.open()
            # When it answers, then the server says so, once
            await until(lambda: _is_whole(store))
            await store.tick()
        finally:
            await redis.config_set("maxmemory-policy", "noeviction")
    said = [one.message for one in caplog.records if "maxmemory-policy allkeys-lru" in one.message]
    assert len(said) == 1


async def test_figures_say_what_is_missing_and_a_list_is_whole_or_refused(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = make_cluster()
    await cluster.make_queues()
    world = await cluster.open_world()
    ask = world.app.ask
    with cluster.without_node():
        # When a node stands still, then the figures of the other queues are there, and what is not
        found = figures(await ask("GET", "/metrics"))
        assert found[f'penstock_queue_messages{{queue="{cluster.here}"}}'] == 1
        assert 'penstock_queue_messages{queue="away"}' not in found
        assert found["penstock_queues_missing"] == 1
        assert found["penstock_queue_list_up"] == 1
        assert found[f'penstock_service_up{{service="redis {cluster.node}"}}'] == 0
        assert sum(name.startswith("penstock_service_up") for name in found) == 5
        # And a list with a gap is none, nor are the figures of all queues
        for path in ("/v1/queues", "/v1/stats"):
            refused = await ask("GET", path)
            assert (refused.status, refused.json["code"]) == (503, "store_unavailable")
            assert "queue 'away' cannot be looked at" in refused.json["detail"]
            assert cluster.node in refused.json["detail"]
        # And each of the others can be looked at
        assert (await ask("GET", f"/v1/queues/{cluster.here}")).status == 200
        # And the server is ready, and says what is not
        for path in ("/readyz", "/actuator/health"):
            health = await ask("GET", path)
            assert (health.status, health.json["status"]) == (200, "UP")
            assert health.json["components"]["store"]["status"] == "UP"
            down = health.json["components"][f"redis {cluster.node}"]
            assert down == {"status": "DOWN", "problem": f"{cluster.node} does not answer"}
            parts = health.json["components"].values()
            assert sum(part["status"] == "DOWN" for part in parts) == 1
    # And when it goes on, nothing is missing
    await until(lambda: _is_listed(world))
    found = figures(await ask("GET", "/metrics"))
    assert found['penstock_queue_messages{queue="away"}'] == 1
    assert found["penstock_queues_missing"] == 0
    assert found[f'penstock_service_up{{service="redis {cluster.node}"}}'] == 1


async def _is_listed(world: World) -> bool:
    return (await world.app.ask("GET", "/v1/queues")).status == 200


async def test_while_the_list_of_queues_is_away_those_that_are_known_go_on(
    make_cluster: Callable[..., Cluster],
) -> None:
    # Given a server that has seen the list, which is on the node that goes
    cluster = make_cluster(list=True)
    await cluster.make_queues()
    world = await cluster.open_world()
    assert await _is_listed(world)
    await world.broker.receive(cluster.here)
    store = world.broker._store
    assert isinstance(store, RedisStore)
    with cluster.without_node():
        # When it is away, then what time brings about comes in the other queues
        cluster.clock.advance(60)
        with pytest.raises(StoreUnavailable):
            await store.tick()
        stats = await world.broker.queue_stats(cluster.here)
        assert {one.name: one.leases_expired for one in stats.subscriptions}["default"] == 1
        # And their callbacks are known, and their figures
        called = [one.queue for one in await world.broker.callbacks()]
        assert called == [cluster.here]
        found = figures(await world.app.ask("GET", "/metrics"))
        assert found[f'penstock_queue_messages{{queue="{cluster.here}"}}'] == 1
        assert (found["penstock_queues_missing"], found["penstock_queue_list_up"]) == (1, 0)
        # And the list is refused, and so is a new queue, which would not be in it
        refused = await world.app.ask("GET", "/v1/queues")
        assert (refused.status, cluster.node in refused.json["detail"]) == (503, True)
        with pytest.raises(StoreUnavailable):
            await world.broker.create_queue(elsewhere(node_of("away"), "new"))
        # And a server that starts now learns of a queue when somebody uses it
        other = Broker(await cluster.open())
        assert (await other.known_stats()).queues == []
        await other.publish(cluster.here, [b"b"])
        assert [one.name for one in (await other.known_stats()).queues] == [cluster.here]


async def test_while_the_users_are_away_those_of_the_settings_come_in_and_nobody_is_forgotten(
    make_cluster: Callable[..., Cluster],
) -> None:
    # Given a user with a subscription and a token, and users and key on the node that goes
    cluster = make_cluster(users=True, tokens=True)
    await cluster.make_queues()
    queue = elsewhere(node_of("away"), QUEUE)
    first = await cluster.open_world(**_OWN, topics_queue=queue)
    alice = await first.person("alice")
    name = await first.subscribe(alice)
    with cluster.without_node():
        # When a server starts meanwhile
        world = await cluster.open_world(**_OWN, topics_queue=queue)
        path = f"/v1/queues/{cluster.here}"
        # Then the users of the settings come in, with their passwords alone
        for who, password, status in (
            ("user", "of-the-user", 200),
            ("admin", "of-the-admin", 200),
            ("user", "password", 401),
        ):
            answer = await world.app.ask("GET", path, authorization=basic(who, password))
            assert answer.status == status, answer.body
        # And of others it is not known whether they may, however they come
        login = {"email": alice.email, "password": "secret"}
        own_login = {"email": "user", "password": "of-the-user"}
        for refused in (
            await world.app.ask("GET", path, authorization=basic(alice.email, "secret")),
            await world.app.ask("GET", path, authorization=alice.token),
            await world.post("/auth/local", login),
            await world.post("/auth/local", own_login),
            await world.app.ask(
                "GET", "/admin/subscribers", authorization=basic("admin", "of-the-admin")
            ),
        ):
            assert (refused.status, refused.json["code"]) == (503, "store_unavailable")
            assert b"not known yet" in refused.body
        # And the server says so
        health = await world.app.ask("GET", "/readyz")
        assert health.status == 200
        assert cluster.node in health.json["components"]["users"]["problem"]
        assert cluster.node in health.json["components"]["tokens"]["problem"]
        # And one that may let nobody in, because its passwords are the default ones, is not ready
        closed = await cluster.open_world()
        assert (await closed.app.ask("GET", "/readyz")).status == 503
        assert (await closed.app.ask("GET", path)).status == 503
    # And when the node goes on, everybody is known as before, with what they had
    await until(lambda: _lets_in(world, path, alice.token))
    health = await world.app.ask("GET", "/readyz")
    assert health.status == 200
    assert not {"users", "tokens"} & set(health.json["components"])
    assert name in [one.name for one in (await first.broker.queue_stats(queue)).subscriptions]
    listed = await world.app.ask(
        "GET", "/admin/subscribers", authorization=basic("admin", "of-the-admin")
    )
    assert [one["username"] for one in listed.json] == [alice.email]


async def _lets_in(world: World, path: str, token: str) -> bool:
    return (await world.app.ask("GET", path, authorization=token)).status == 200
