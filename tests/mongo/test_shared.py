"""Users and tokens of servers that have an archive."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.broker import Broker
from penstock.errors import StoreUnavailable
from penstock.http.auth import passwords
from penstock.storage.redis.store import RedisStore
from tests.http.api.world import World
from tests.http.in_process import application
from tests.http.server import running
from tests.mongo.conftest import Addresses, Open
from tests.proxy import Proxy


@pytest.fixture(autouse=True)
def quick_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "ROUNDS", 4)


def test_users_and_tokens_outlive_a_redis_that_was_wiped(
    addresses: Addresses, tmp_path: Path
) -> None:
    options = ("--store", addresses.redis, "--archive", addresses.mongo)
    # Given a user and a token of a server
    with running("memory:", tmp_path / "log-1", *options) as server:
        new = {"username": "alice", "password": "secret"}
        admin = server.client("admin", "adminpassword")
        assert admin.send_json("POST", "/admin/subscribers", new).status == 201
        token = server.client().send_json("POST", "/auth/local", new).json["token"]
    # When it is gone, and Redis has lost everything
    asyncio.run(addresses.wipe_redis())
    # Then another one knows both
    with running("memory:", tmp_path / "log-2", *options) as server:
        assert server.client().ask("GET", "/v1/queues", Authorization=token).status == 200
        assert server.client("alice", "secret").ask("GET", "/v1/queues").status == 200


async def test_a_change_is_told_to_the_other_servers(open_server: Open) -> None:
    one, other = await open_server(), await open_server()
    looks: asyncio.Queue[None] = asyncio.Queue()
    other.shared.follow("users", lambda: looks.put(None))
    async with asyncio.timeout(20):
        await looks.get()  # it has begun
        await one.shared.put("users", b"alice", "")
        await looks.get()
    document = await other.shared.get("users")
    assert document is not None
    assert document.content == b"alice"


async def test_documents_from_before_there_was_an_archive_are_taken_over(
    addresses: Addresses, open_server: Open
) -> None:
    before = await RedisStore.open(addresses.redis)
    version = await before.shared.put("users", b"alice", "")
    assert version is not None
    await before.close()
    store = await open_server()
    document = await store.shared.get("users")
    assert document is not None
    assert document.content == b"alice"
    # And from then on they are in the archive
    assert await store.shared.put("users", b"bob", document.version)
    await addresses.wipe_redis()
    again = await store.shared.get("users")
    assert again is not None
    assert again.content == b"bob"


async def test_while_mongodb_is_away_known_users_go_on_and_none_is_changed(
    addresses: Addresses, open_server: Open
) -> None:
    proxy = Proxy(addresses.mongo)
    await proxy.heal()
    store = await open_server(mongo=proxy.url)
    broker = Broker(store)
    await broker.create_queue("jobs")
    async with application(broker) as app:
        server = World(app, broker)
        alice = await server.person("alice")
        await proxy.cut()
        with pytest.raises(StoreUnavailable):
            await broker.publish("jobs", [b"x"])  # it is found out
        # Then a login, which has to go by what is known, does not wait either
        token = await server.log_in(alice.email)
        answer = await app.ask(
            "POST", "/v1/queues/jobs/subscriptions/default/receive", b"{}", authorization=token
        )
        assert answer.status == 200, answer.body
        refused = await server.create("bob@example.com")
        assert (refused.status, refused.json["code"]) == (503, "store_unavailable")
        assert refused.headers["retry-after"] == "1"
        # And when it is back, so are changes
        await proxy.heal()
        await store.tick()
        assert (await server.create("bob@example.com")).status == 200
    await store.close()
    await proxy.cut()
