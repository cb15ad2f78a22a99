"""A real server over a cluster of which a node was killed."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.http.server import running
from tests.redis.test_cluster import elsewhere
from tests.redis_cluster import cluster_url, killed, node_of, prefix_with, remove_cluster_keys
from tests.redis_server import unique_prefix, with_prefix

_SECONDS = 30


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_server_starts_although_a_node_was_killed_and_takes_it_in_when_it_is_back(
    tmp_path: Path,
) -> None:
    url = cluster_url()
    prefix = prefix_with(unique_prefix(tmp_path), list=False, users=False, tokens=False)
    store = ("--store", with_prefix(url, prefix))
    port = node_of("away")
    here = elsewhere(port, "here")
    with ExitStack() as stack:
        # Given queues on two nodes, and a server that runs
        first = stack.enter_context(running("memory:", tmp_path / "first", *store))
        user = first.client("user", "password")
        pushed = {queue: user.push(queue).json["id"] for queue in ("away", here)}
        with killed(port):
            # When one of them is killed, and another server started
            second = stack.enter_context(running("memory:", tmp_path / "second", *store))
            user = second.client("user", "password")
            # Then it serves what is there
            assert user.pop(here).json["id"] == pushed[here]
            refused = user.pop("away")
            assert (refused.status, refused.json["code"]) == (503, "store_unavailable")
            assert f"127.0.0.1:{port}" in refused.json["message"]
            ready = user.ask("GET", "/readyz")
            assert ready.status == 200
            assert ready.json["components"][f"redis 127.0.0.1:{port}"]["status"] == "DOWN"
            metrics = user.ask("GET", "/metrics")
            assert metrics.status == 200
            assert f'{{service="redis 127.0.0.1:{port}"}} 0.0' in metrics.body.decode()
        # And when the node is back, both give what it has, each message once
        one, other = (server.client("user", "password") for server in (first, second))
        until(lambda: other.ask("GET", "/v1/queues").status == 200)
        assert other.pop("away").json["id"] == pushed["away"]
        assert one.pop("away").status == 404
        assert (first.stop(), second.stop()) == (0, 0)
    remove_cluster_keys(prefix)
