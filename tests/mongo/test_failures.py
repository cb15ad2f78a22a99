"""MongoDB is away for a while; servers die; Redis comes back with old data."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import BulkWriteError

from penstock.broker import Broker
from penstock.core.config import SubscriptionConfig
from penstock.errors import InvalidArgument, MissingExtra, StoreUnavailable, UnknownBackend
from penstock.storage.mongo import connection
from penstock.storage.mongo.store import ArchivedStore, ArchiveMode
from penstock.storage.redis.store import RedisStore
from penstock.storage.registry import open_archived, open_store
from tests.mongo.conftest import Addresses, Open, redis_rolled_back
from tests.proxy import Proxy

# The driver leaves a socket to the collector when it is closed while it looks for a server.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

_LOCK_SECONDS = 1.0
_UNCONFIRMED = {"writeErrors": [], "writeConcernErrors": [{"code": 189, "errmsg": "stepped down"}]}


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give up looking for MongoDB sooner than a user would."""
    monkeypatch.setattr(connection, "_SELECTION_SECONDS", 0.5)
    yield
    gc.collect()


@pytest_asyncio.fixture
async def proxy(addresses: Addresses) -> AsyncIterator[Proxy]:
    proxy = Proxy(addresses.mongo)
    await proxy.heal()
    yield proxy
    await proxy.cut()


@pytest_asyncio.fixture
async def far(open_server: Open, proxy: Proxy) -> AsyncIterator[ArchivedStore]:
    """A server whose MongoDB can go away, with a queue `jobs`."""
    store: ArchivedStore = await open_server(mongo=proxy.url)
    await Broker(store).create_queue("jobs")
    yield store
    await store.close()


async def _wait_until_healthy(store: ArchivedStore) -> None:
    """Do the regular work until it succeeds."""
    async with asyncio.timeout(30):
        while store.problem is not None:
            try:
                await store.copy_all()
            except StoreUnavailable:
                await asyncio.sleep(0.05)


async def test_while_mongodb_is_away_publishes_are_refused_and_nothing_else(
    far: ArchivedStore, proxy: Proxy, database: Any
) -> None:
    broker = Broker(far)
    await broker.publish("jobs", [b"a", b"b"])
    await proxy.cut()
    # The first one finds out, and cannot know whether it arrived
    with pytest.raises(StoreUnavailable, match="MongoDB is away"):
        await broker.publish("jobs", [b"c"])
    assert far.problem is not None
    # It is known which part is away
    assert broker.services == {"redis": None, "mongo": far.problem}
    # From then on publishes are refused before Redis has them
    with pytest.raises(StoreUnavailable):
        await broker.publish("jobs", [b"d"])
    assert [m.body for m in await broker.read("jobs")] == [b"a", b"b", b"c"]
    # Consumers go on, and their marks are not lost
    given = await broker.receive("jobs", limit=2)
    await broker.ack("jobs", given)
    assert len(await broker.view("jobs")) == 3
    # When it is back, everything goes on by itself, and what waited is written
    await proxy.heal()
    await _wait_until_healthy(far)
    assert (await broker.publish("jobs", [b"e"])).durability == "replicated"
    await far.copy_changed()
    found = await database["jobs"].find().sort("index", 1).to_list()
    assert [(one["content"], one["consumed"]) for one in found] == [
        ("a", True),
        ("b", True),
        ("c", False),
        ("e", False),
    ]


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_what_a_majority_has_not_confirmed_is_written_again(
    mode: ArchiveMode, open_server: Open, database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a MongoDB whose primary steps down as it writes, so that the write may be undone
    store = await open_server(mode)
    broker = Broker(store)
    await broker.create_queue("jobs")
    written = 0

    async def step_down(collection: Any, documents: Any, **options: Any) -> None:
        nonlocal written
        written += 1
        if written == 1:
            raise BulkWriteError(_UNCONFIRMED)
        await insert_many(collection, documents, **options)

    insert_many = AsyncCollection.insert_many
    monkeypatch.setattr(AsyncCollection, "insert_many", step_down)
    # When a message is published
    if mode == "sync":
        with pytest.raises(StoreUnavailable, match="stepped down"):
            await broker.publish("jobs", [b"x"])
    else:
        await broker.publish("jobs", [b"x"])
    # Then the record has it in the end, since the queue has it
    await store._writer.finish(20)
    assert await database["jobs"].count_documents({}) == 1
    assert len(await broker.receive("jobs")) == 1


async def test_marks_that_a_majority_has_not_confirmed_are_made_again(
    open_server: Open, database: Any
) -> None:
    store = await open_server()
    broker = Broker(store)
    await broker.create_queue("jobs")
    await broker.publish("jobs", [b"x"])
    await store.copy_changed()
    await broker.ack("jobs", await broker.receive("jobs"))

    async def step_down(*arguments: Any, **options: Any) -> None:
        raise BulkWriteError(_UNCONFIRMED)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AsyncCollection, "bulk_write", step_down)
        await store.copy_changed()
        with pytest.raises(StoreUnavailable, match="stepped down"):
            await broker.create_subscription("jobs", "more")
    await store.copy_changed()
    assert (await database["jobs"].find_one({}))["consumed"]


async def test_definitions_are_refused_while_mongodb_is_away(
    far: ArchivedStore, proxy: Proxy
) -> None:
    broker = Broker(far)
    await proxy.cut()
    with pytest.raises(StoreUnavailable):
        await broker.publish("jobs", [b"a"])
    for change in (broker.create_queue("other"), broker.delete_queue("jobs")):
        with pytest.raises(StoreUnavailable):
            await change
    assert [stats.name for stats in await broker.stats()] == ["jobs"]
    await proxy.heal()
    await _wait_until_healthy(far)
    await broker.delete_queue("jobs")
    assert await broker.stats() == []


async def test_a_publish_that_was_refused_may_be_repeated_with_its_key(
    far: ArchivedStore, proxy: Proxy, database: Any, addresses: Addresses, open_server: Open
) -> None:
    # Given a publish that reached Redis alone
    broker = Broker(far)
    await proxy.cut()
    with pytest.raises(StoreUnavailable):
        await broker.publish("jobs", [b"a"], idempotency_key="k")
    # When it is repeated at another server, which has not its documents
    other = Broker(await open_server())
    result = await other.publish("jobs", [b"a"], idempotency_key="k")
    # Then it is one message, and in the record
    assert result.durability == "replicated"
    assert [p.index for p in result] == [0]
    assert await database["jobs"].count_documents({}) == 1
    await proxy.heal()
    await _wait_until_healthy(far)
    assert await database["jobs"].count_documents({}) == 1


async def test_a_redis_that_comes_back_with_old_data_is_made_whole(
    broker: Broker, store: ArchivedStore, addresses: Addresses, open_server: Open
) -> None:
    # Given a Redis that forgets the last publish, as one without fsync may
    await broker.publish("jobs", [b"a"])
    async with redis_rolled_back(addresses):
        await broker.publish("jobs", [b"b", b"c"])
    # When a server starts
    other = Broker(await open_server())
    # Then nothing is missing, and no index is given twice
    assert [m.body for m in await other.read("jobs")] == [b"a", b"b", b"c"]
    assert [p.index for p in await other.publish("jobs", [b"d"])] == [3]


async def test_old_data_is_noticed_even_if_a_server_has_just_died_while_it_looked_for_losses(
    broker: Broker, addresses: Addresses, open_server: Open
) -> None:
    # Given a Redis that forgets the last publish, and has the lock of a server that is gone
    await broker.publish("jobs", [b"a"])
    async with redis_rolled_back(addresses):
        await broker.publish("jobs", [b"b"])
    gone = await RedisStore.open(addresses.redis)
    assert await gone.lock("rebuild", _LOCK_SECONDS)
    await gone.close()
    # When a server starts before the lock has run out
    other = await open_server()
    # Then it does not believe the mark that Redis is complete
    assert other.recovered.restored == {"jobs": 2}


async def test_a_server_that_publishes_into_old_data_notices(
    broker: Broker, addresses: Addresses
) -> None:
    await broker.publish("jobs", [b"a"])
    async with redis_rolled_back(addresses):
        await broker.publish("jobs", [b"b"])
    with pytest.raises(StoreUnavailable, match="rebuilt"):
        await broker.publish("jobs", [b"c"])
    await broker.publish("jobs", [b"d"])
    assert [m.body for m in await broker.read("jobs")] == [b"a", b"b", b"d"]


async def test_a_server_that_only_runs_notices_old_data_as_well(
    broker: Broker, store: ArchivedStore, addresses: Addresses
) -> None:
    await broker.publish("jobs", [b"a"])
    await store.copy_all()
    async with redis_rolled_back(addresses):
        await broker.publish("jobs", [b"b", b"c"])
        await store.check_answered()
    await store.copy_all()
    assert [d.body for d in await broker.receive("jobs", limit=9)] == [b"a", b"b", b"c"]


async def test_definitions_and_acks_of_the_record_outlive_old_data(
    broker: Broker, store: ArchivedStore, addresses: Addresses
) -> None:
    await broker.publish("jobs", [b"a", b"b", b"c"])
    # Given a Redis that forgets an ack, a new subscription and a change of another
    async with redis_rolled_back(addresses):
        await broker.ack("jobs", await broker.receive("jobs", limit=1))
        await broker.create_subscription("jobs", "more", start="earliest")
        await broker.alter_subscription("jobs", "default", max_in_flight=9)
    # When it is used, and the server does its regular work
    await broker.publish("jobs", [b"d"])
    await broker.receive("jobs", limit=1)
    await store.copy_changed()
    # Then it has them again
    found = {one.name: one.config.max_in_flight for one in await broker.subscriptions("jobs")}
    assert found == {"default": 9, "more": SubscriptionConfig().max_in_flight}
    given = await broker.receive("jobs", limit=9)
    assert [d.body for d in given] == [b"b", b"c", b"d"]


async def test_one_that_is_made_in_old_data_is_not_answered(
    broker: Broker, addresses: Addresses
) -> None:
    async with redis_rolled_back(addresses):
        for number in range(3):
            await broker.create_subscription("jobs", f"more-{number}")
    with pytest.raises(StoreUnavailable, match="old data"):
        await broker.create_subscription("jobs", "other")
    await broker.create_subscription("jobs", "other")
    assert len(await broker.subscriptions("jobs")) == 5


async def test_several_servers_that_start_on_an_empty_redis_rebuild_it_once(
    broker: Broker, addresses: Addresses, open_server: Open
) -> None:
    await broker.publish("jobs", [b"%d" % n for n in range(20)])
    await broker.close()
    await addresses.wipe_redis()
    servers = await asyncio.gather(*(open_server() for _ in range(3)))
    given = await asyncio.gather(*(Broker(one).receive("jobs", limit=9) for one in servers))
    assert sorted(d.index for part in given for d in part) == list(range(20))


async def test_no_mongodb_at_start_is_said(addresses: Addresses) -> None:
    with pytest.raises(StoreUnavailable, match="MongoDB is away"):
        await open_archived(addresses.redis, "mongodb://127.0.0.1:1/x")


async def test_an_archive_that_cannot_be_meant_is_refused(addresses: Addresses) -> None:
    with pytest.raises(InvalidArgument, match="for a store in Redis"):
        await open_store("memory:", archive=addresses.mongo)
    with pytest.raises(UnknownBackend, match="mongodb://"):
        await open_store(addresses.redis, archive="postgres://x")
    with pytest.raises(InvalidArgument, match="not one of MongoDB") as refusal:
        await open_store(addresses.redis, archive="mongodb://user:secret@host:port/x")
    assert "secret" not in str(refusal.value)


async def test_without_the_driver_the_error_names_the_extra(
    addresses: Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("penstock.storage.mongo")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pymongo", None)
    with pytest.raises(MissingExtra, match=r"penstock\[mongo\]"):
        await open_store(addresses.redis, archive=addresses.mongo)
