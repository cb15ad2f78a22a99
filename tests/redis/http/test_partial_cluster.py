"""A real server over a cluster of which a node was killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from penstock.broker import Broker
from penstock.storage.redis.store import RedisStore
from tests.http.server import Server
from tests.redis.test_cluster import as_soon_as_it_can, elsewhere
from tests.redis_cluster import cluster_url, killed, node_of, prefix_with, remove_cluster_keys
from tests.redis_server import unique_prefix, with_prefix


@asynccontextmanager
async def serving(url: str, log: Path) -> AsyncIterator[Server]:
    server = await asyncio.to_thread(Server, "memory:", log, "--store", url)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.kill()


async def test_a_server_starts_although_a_node_was_killed_and_takes_it_in_when_it_is_back(
    tmp_path: Path,
) -> None:
    # Given queues on two nodes, and somebody who uses them
    cluster_url()
    prefix = prefix_with(unique_prefix(tmp_path), list=False, users=False, tokens=False)
    url = with_prefix(cluster_url(), prefix)
    port = node_of("away")
    node, here = f"127.0.0.1:{port}", elsewhere(port, "here")
    async with Broker(await RedisStore.open(url)) as broker:
        for queue in ("away", here):
            await broker.create_queue(queue)
            await broker.publish(queue, [b"a"])
        with killed(port):
            # When one is killed, and a server started
            async with serving(url, tmp_path / "log") as server:
                user = server.client("user", "password")
                # Then it serves what is there, and says what is not
                assert user.pop(here).json["content"] == "a"
                refused = user.pop("away")
                assert (refused.status, refused.json["code"]) == (503, "store_unavailable")
                assert node in refused.json["message"]
                ready = user.ask("GET", "/readyz")
                assert ready.status == 200
                assert ready.json["components"][f"redis {node}"]["status"] == "DOWN"
                metrics = user.ask("GET", "/metrics")
                assert metrics.status == 200
                assert f'penstock_service_up{{service="redis {node}"}} 0.0' in str(metrics.body)
                assert server.stop() == 0
        # And who has used it all along has it again, with what is in it
        given = await as_soon_as_it_can(lambda: broker.receive("away"))
        assert [one.body for one in given] == [b"a"]
    remove_cluster_keys(prefix)
