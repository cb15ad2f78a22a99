"""The peers: other embedded Python queues, each behind the same small interface."""

from __future__ import annotations

from importlib.util import find_spec

from benchmarks.engine.peers.disk_cache import DiskCache
from benchmarks.engine.peers.huey_storage import HueyStorage
from benchmarks.engine.peers.lite_queue import LiteQueue
from benchmarks.engine.peers.peer import Peer
from benchmarks.engine.peers.persist_queue import PersistQueue

__all__ = ["PEERS", "DiskCache", "HueyStorage", "LiteQueue", "Peer", "PersistQueue", "installed"]

PEERS: dict[str, type[Peer]] = {
    "persistqueue": PersistQueue,
    "litequeue": LiteQueue,
    "diskcache": DiskCache,
    "huey": HueyStorage,
}
"""By the name of the module that each needs."""


def installed() -> tuple[tuple[type[Peer], ...], tuple[str, ...]]:
    """The peers that can be run here, and the names of those that cannot."""
    found = tuple(peer for module, peer in PEERS.items() if find_spec(module) is not None)
    missing = tuple(peer.name for peer in PEERS.values() if peer not in found)
    return found, missing
