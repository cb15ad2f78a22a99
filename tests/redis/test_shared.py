"""Users, tokens, limits and topics of several servers over one Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from penstock.broker import Broker
from penstock.errors import InvalidArgument
from penstock.http.auth import passwords
from penstock.storage.redis import shared as redis_shared
from penstock.storage.redis.store import RedisStore
from tests.http.api.world import QUEUE, Person, World
from tests.http.in_process import application
from tests.redis_server import redis_url, remove_keys

_SECONDS = 20

Open = Callable[..., Awaitable[World]]


@pytest_asyncio.fixture
async def open_server(address: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Open]:
    """Any number of servers, each with its own connection and memory."""
    monkeypatch.setattr(passwords, "ROUNDS", 4)
    async with AsyncExitStack() as stack:

        async def open_one(**settings: Any) -> World:
            broker = Broker(await RedisStore.open(address))
            await stack.enter_async_context(broker)
            app = await stack.enter_async_context(application(broker, **settings))
            return World(app, broker)

        yield open_one


async def status_of(server: World, token: str) -> int:
    return (await server.app.ask("GET", "/v1/queues", authorization=token)).status


async def until_refused(server: World, token: str) -> None:
    async with asyncio.timeout(_SECONDS):
        while await status_of(server, token) != 401:
            pass


def round_trips(server: World) -> int:
    store = server.broker._store
    assert isinstance(store, RedisStore)
    return store.round_trips


async def test_a_user_of_one_server_logs_in_at_another_at_once(open_server: Open) -> None:
    one, other = await open_server(), await open_server()
    for number in range(5):
        person = await one.person(f"alice-{number}")
        # By password, and by the token that the first server gave
        assert await status_of(other, await other.log_in(person.email)) == 200
        assert await status_of(other, person.token) == 200


async def test_a_user_who_was_removed_is_refused_everywhere(open_server: Open) -> None:
    one, other = await open_server(), await open_server()
    alice = await one.person("alice")
    assert await status_of(other, alice.token) == 200
    removed = await one.app.ask("DELETE", f"/admin/subscribers/{alice.email}", name="admin")
    assert removed.status == 204
    await until_refused(other, alice.token)
    login = {"email": alice.email, "password": "secret"}
    assert (await other.post("/auth/local", login)).status == 401


async def test_a_new_password_voids_the_old_one_and_its_tokens_everywhere(
    open_server: Open,
) -> None:
    one, other = await open_server(), await open_server()
    alice = await one.person("alice")
    assert await status_of(other, alice.token) == 200
    change = {"email": alice.email, "password": "secret", "new_password": "better"}
    assert (await one.post("/auth/password", change)).status == 200
    # At once for the password, whichever server is asked
    old = await other.post("/auth/local", {"email": alice.email, "password": "secret"})
    assert old.status == 401
    assert await status_of(other, await other.log_in(alice.email, "better")) == 200
    await until_refused(other, alice.token)


async def test_what_one_server_has_done_another_goes_on_with_at_once(open_server: Open) -> None:
    one, other = await open_server(), await open_server()
    for number in range(5):
        alice = await one.person(f"alice-{number}")
        # A user that has just been made is listed, waited for and removed elsewhere
        listed = await other.app.ask("GET", "/admin/subscribers", name="admin")
        assert alice.email in [user["username"] for user in listed.json]
        await other.wait_for(alice, await one.person(f"bob-{number}"))
        removed = await other.app.ask("DELETE", f"/admin/subscribers/{alice.email}", name="admin")
        assert removed.status == 204
        # And the name is free again
        assert (await one.create(alice.email)).status == 200


async def test_a_change_whose_news_were_lost_is_found_by_looking(
    open_server: Open, monkeypatch: pytest.MonkeyPatch, redis: Redis, root: str
) -> None:
    monkeypatch.setattr(redis_shared, "LOOK_SECONDS", 0.01)
    one, other = await open_server(), await open_server()
    alice = await one.person("alice")
    assert await status_of(other, alice.token) == 200
    # When the users are others all of a sudden, and nobody was told
    key = root.removesuffix("{jobs}") + "document:users.json"
    users = str(await redis.hget(key, "content"))
    await redis.hset(
        key, mapping={"content": users.replace(alice.id, "0" * 24), "version": "silent"}
    )
    # Then the servers notice
    await until_refused(other, alice.token)


async def test_one_of_two_servers_that_add_a_user_at_once_is_refused(open_server: Open) -> None:
    one, other = await open_server(), await open_server()
    for number in range(5):
        email = f"alice-{number}@example.com"
        answers = await asyncio.gather(one.create(email), other.create(email))
        assert sorted(answer.status for answer in answers) == [200, 409]
        (refused,) = [answer for answer in answers if answer.status == 409]
        assert refused.json["code"] == "user_exists"
    # And of those that do not exclude each other, none is lost
    emails = [f"bob-{number}@example.com" for number in range(6)]
    await asyncio.gather(
        *(server.create(email) for server, email in zip([one, other] * 3, emails, strict=True))
    )
    for email in emails:
        await one.log_in(email)
        await other.log_in(email)


async def test_servers_that_start_at_once_have_one_key_and_one_list(open_server: Open) -> None:
    servers = await asyncio.gather(*(open_server() for _ in range(3)))
    tokens = [await server.log_in("user", "password") for server in servers]
    for server in servers:
        assert [await status_of(server, token) for token in tokens] == [200] * 3


async def test_the_server_that_starts_last_has_the_passwords_of_the_settings(
    open_server: Open,
) -> None:
    one = await open_server()
    old = await one.log_in("user", "password")
    other = await open_server(user_password="another")
    await until_refused(one, old)
    assert await status_of(one, await other.log_in("user", "another")) == 200
    assert await status_of(one, await one.log_in("user", "another")) == 200


async def test_a_server_with_default_passwords_does_not_bring_them_back(
    open_server: Open,
) -> None:
    one = await open_server(user_password="another")
    for settings in ({}, {"user_username": "somebody"}):
        with pytest.raises(InvalidArgument, match="role USER"):
            await open_server(**settings)
    assert await status_of(one, await one.log_in("user", "another")) == 200


async def test_who_is_known_costs_no_round_trip(open_server: Open) -> None:
    one, other = await open_server(), await open_server()
    alice = await one.person("alice")
    assert await status_of(other, alice.token) == 200
    before = round_trips(other)
    for _ in range(10):
        assert (await other.app.ask("GET", "/nothing", authorization=alice.token)).status == 404
    assert round_trips(other) == before


async def test_what_a_redis_without_an_archive_has_lost_is_put_back(
    open_server: Open, monkeypatch: pytest.MonkeyPatch, root: str
) -> None:
    monkeypatch.setattr(redis_shared, "LOOK_SECONDS", 0.01)
    one = await open_server()
    alice = await one.person("alice")
    prefix = root.removesuffix(":{jobs}")
    await remove_keys(redis_url(), prefix)
    # By whoever knows it still
    async with asyncio.timeout(_SECONDS), Redis.from_url(redis_url()) as redis:
        for name in ("users.json", "token.key"):
            while not await redis.exists(f"{prefix}:document:{name}"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    other = await open_server()
    assert await status_of(other, alice.token) == 200


async def test_limits_are_of_all_servers_together(open_server: Open, redis: Redis) -> None:
    servers = [await open_server(push_per_second=2) for _ in range(3)]

    async def push(server: World) -> int:
        answer = await server.app.ask("POST", "/queue/push", b"x", consumerGroup="jobs")
        return answer.status

    assert await push(servers[0]) == 200  # the queue is there, and the password known
    began = (await redis.time())[0]
    statuses = [await push(server) for _ in range(30) for server in servers]
    windows = (await redis.time())[0] - began + 1
    assert set(statuses) == {200, 429}
    assert 1 <= statuses.count(200) <= 2 * windows


async def test_a_limit_costs_one_round_trip_and_none_where_there_is_none(
    open_server: Open,
) -> None:
    costs = {}
    for name, limit in (("free", 0), ("limited", 1000)):
        server = await open_server(push_per_second=limit)
        admin = await server.admin()
        new = {"username": name, "password": "secret", "rateLimit": limit}
        assert (await server.post("/admin/subscribers", new, admin)).status == 201
        token = await server.log_in(name)

        async def push(server: World = server, token: str = token) -> int:
            answer = await server.app.ask(
                "POST", "/queue/push", b"x", consumerGroup="jobs", authorization=token
            )
            return answer.status

        assert await push() == 200
        before = round_trips(server)
        assert [await push() for _ in range(5)] == [200] * 5
        costs[name] = (round_trips(server) - before) / 5
    # A user's limit and that of an endpoint are counted together
    assert costs == {"free": 1, "limited": 2}


@pytest.mark.parametrize("seed", range(4))
async def test_who_subscribes_at_two_servers_at_once_waits_for_whom_it_should(
    open_server: Open, seed: int
) -> None:
    one, other = await open_server(), await open_server()
    people = [await one.person(name) for name in ("a", "b", "c")]
    a, b, c = people
    await one.wait_for(c, a)

    async def subscribe(server: World, person: Person) -> str:
        return await server.subscribe(person, f"topic-{person.email[0]}")

    # When all of it happens at once, here and there
    steps: list[Awaitable[Any]] = [subscribe(one, a), subscribe(other, c)]
    steps += [subscribe(other, b), one.wait_for(c, b)]
    steps = steps[seed:] + steps[:seed]
    await asyncio.gather(*steps)
    # Then the third comes after both others
    stats = await one.broker.queue_stats(QUEUE)
    names = {one.name.partition("-")[0]: one.name for one in stats.subscriptions}
    after = {one.name: one.config.after for one in stats.subscriptions}
    assert set(after[names[c.id]]) == {names[a.id], names[b.id]}
    assert all(one.config.callback is not None for one in stats.subscriptions)


async def test_a_server_that_starts_spares_what_another_is_about_to_make(
    open_server: Open,
) -> None:
    one = await open_server()
    people = [await one.person(f"p-{number}") for number in range(4)]
    await asyncio.gather(
        *(one.subscribe(person) for person in people), *(open_server() for _ in range(3))
    )
    stats = await one.broker.queue_stats(QUEUE)
    assert len(stats.subscriptions) == 4
    assert all(one.config.callback is not None for one in stats.subscriptions)
