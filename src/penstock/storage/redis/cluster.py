"""A cluster: which node has which slot, and routing commands to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from redis import exceptions as failures
from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.crc import key_slot

from penstock.storage.redis.node import Node, Settings

__all__ = ["Cluster"]

Place = tuple[str, int]
"""Host and port."""
SlotRange = tuple[int, int, list[Place]]
"""First and last slot, and the nodes that have them: the master, then its replicas."""
T = TypeVar("T")

_SLOTS = 16384
# In CLUSTER INFO, if the cluster accepts commands.
_STATE_OK = b"cluster_state:ok"
_DOWN = "the cluster is down"
# How many redirections a command follows.
_MAX_REDIRECTIONS = 16
# How many nodes are asked for the slot map at once, and for how long; the first answer counts.
_ASKED_AT_ONCE = 3
_ASK_SECONDS = 1.0
# How often the slot map is read again while nodes fail or are slow.
_REFRESH_SECONDS = 0.25
# A command that has waited for this long may be waiting for a node that was replaced.
_SLOW_SECONDS = 1.0
# Errors after which another node may have taken over.
_FAILURES = (
    failures.ConnectionError,
    failures.TimeoutError,
    failures.ReadOnlyError,
    failures.ClusterError,
    OSError,
)


class Cluster:
    """Routes each command to the master of its slot. A node that hangs does not affect the others.

    The slot map is read again, from other nodes, when a command fails, and repeatedly while a node
    with slots is slow to answer. Commands to a node that has lost its slots to another one are
    aborted. ASK redirections are not followed: while a slot is migrated, a queue may be split
    between two nodes, so its commands fail until the new node has all of it.
    """

    is_cluster = True

    def __init__(
        self, hosts: Sequence[Place], connect: Callable[[Place], Redis], timeout_seconds: float
    ) -> None:
        self._hosts = hosts
        self._connect = connect
        self._timeout_seconds = timeout_seconds
        self._nodes: dict[Place, Node] = {}
        self._removed: set[Node] = set()  # no longer in the cluster, and not closed yet
        self._owners: list[Place | None] = []  # by slot; empty until the map is known
        self._places: set[Place] = set()  # including replicas
        self._settings: dict[Place, Settings] = {}
        self._checked: set[Place] = set()  # their settings were read since they were last away
        self._reading: asyncio.Task[None] | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._is_refresh_due = False
        self._background: set[asyncio.Task[Any]] = set()
        self._rotation = 0
        self._listened_to: Place | None = None

    @property
    def is_partly_available(self) -> bool:
        return any(node.answers for node in self._nodes.values())

    async def send(
        self, key: str, command: Sequence[Any], deadline: float, replicas: int = 0
    ) -> Any:
        """See `Node.send`. The command goes to the master that has the key."""
        slot = key_slot(key.encode())
        slow = asyncio.get_running_loop().call_later(_SLOW_SECONDS, self._refresh_soon)
        try:
            for _ in range(_MAX_REDIRECTIONS):
                place = await self._owner(slot)
                try:
                    return await self._node(place).send(command, deadline, replicas)
                except failures.MovedError as exc:
                    self._owners[exc.slot_id] = (exc.host or place[0], exc.port)
                    self._refresh_soon()  # other slots may have moved as well
            raise failures.ClusterError("the nodes do not agree on who has the queue")
        except _FAILURES:
            self._refresh_soon()
            raise
        finally:
            slow.cancel()

    async def check_masters(self, deadline: float) -> bool:
        """See `Driver`. Settings are read once, and again after a node was away."""
        await self._ensure_slot_map()
        masters = self._masters()
        found = await asyncio.gather(*(self._check_master(place, deadline) for place in masters))
        failed = [one for one in found if isinstance(one, Exception)]
        if failed:
            self._refresh_soon()
        if len(failed) == len(found):
            raise failed[0] if failed else failures.ClusterError("no node has any slot")
        return True in found

    async def _check_master(self, place: Place, deadline: float) -> bool | Exception:
        """Whether its settings were read; the error if the node does not work."""
        node = self._node(place)
        try:
            with suppress(failures.NoPermissionError):
                info = await node.send(("CLUSTER", "INFO"), deadline)
                if _STATE_OK not in info:
                    node.mark_failed(_DOWN)
                    return failures.ClusterError(_DOWN)
            if place in self._checked:
                return False
            self._settings[place] = await node.settings(deadline)
        except (failures.RedisError, OSError) as exc:
            self._checked.discard(place)
            return exc
        self._checked.add(place)
        return True

    @property
    def settings(self) -> list[Settings | None]:
        return [self._settings.get(place) for place in self._masters()]

    @property
    def nodes(self) -> dict[str, str | None]:
        return {
            _name(place): node.problem
            for place in self._masters()
            if (node := self._nodes.get(place)) is not None
        }

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[tuple[PubSub, Callable[[], bool]]]:
        """A connection of its own for news, and a check whether they still arrive there.

        Every node gets the news of all nodes. After a failure, another node is tried.
        """
        await self._ensure_slot_map()
        places = self._masters()
        others = [p for p in places if p != self._listened_to and not self._node(p).is_silent]
        places = others or places
        self._rotation += 1
        self._listened_to = place = places[self._rotation % len(places)]
        async with self._connect(place) as redis, redis.pubsub() as pubsub:
            yield pubsub, lambda: place in self._owners

    async def close(self) -> None:
        tasks = [task for task in (self._refreshing, self._reading) if task is not None]
        tasks += self._background
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for node in (*self._nodes.values(), *self._removed):
            await node.close()

    def _masters(self) -> list[Place]:
        """The nodes that have slots."""
        return sorted({place for place in self._owners if place is not None})

    def _node(self, place: Place) -> Node:
        node = self._nodes.get(place)
        if node is None:
            connect = partial(self._connect, place)
            node = self._nodes[place] = Node(connect, self._timeout_seconds, _name(place))
        return node

    async def _owner(self, slot: int) -> Place:
        await self._ensure_slot_map()
        place = self._owners[slot]
        if place is None:
            raise failures.ClusterError(f"no node has the slot {slot}")
        return place

    # The slot map.

    async def _ensure_slot_map(self) -> None:
        """Read the map if it is not known yet. Raises `ClusterError`."""
        if not self._owners:
            await self._read_slot_map()

    def _refresh_soon(self) -> None:
        """Read the map again in the background, now or as soon as `_REFRESH_SECONDS` allow."""
        self._is_refresh_due = True
        if self._refreshing is None:
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh_slot_map())
            self._refreshing.add_done_callback(self._end_refreshing)

    def _end_refreshing(self, _: asyncio.Task[None]) -> None:
        self._refreshing = None

    async def _refresh_slot_map(self) -> None:
        """Read the map every `_REFRESH_SECONDS`, until it was read after the last failure."""
        while self._is_refresh_due or self._is_any_master_slow():
            self._is_refresh_due = False
            with suppress(failures.ClusterError):  # callers get the error from their own calls
                await self._read_slot_map()
            await asyncio.sleep(_REFRESH_SECONDS)

    def _is_any_master_slow(self) -> bool:
        """Whether one is silent or has commands that wait, so that it may have been replaced."""
        return any(
            (node.is_silent or node.slow_commands(_SLOW_SECONDS)) and place in self._owners
            for place, node in self._nodes.items()
        )

    async def _read_slot_map(self) -> None:
        """Read the map; concurrent callers share one read. Raises `ClusterError`."""
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read_from_any_node())
            self._reading.add_done_callback(self._end_reading)
        await asyncio.shield(self._reading)

    def _end_reading(self, task: asyncio.Task[None]) -> None:
        self._reading = None
        if not task.cancelled():
            task.exception()  # retrieved, in case nobody awaits it any more

    async def _read_from_any_node(self) -> None:
        """Ask a few known nodes at once, others each time, and use the first map that comes."""
        known = sorted(place for place in self._places if not self._node(place).is_silent)
        self._rotation += 1
        first = self._rotation % len(known) if known else 0
        chosen = (known[first:] + known[:first])[:_ASKED_AT_ONCE]
        if len(chosen) < _ASKED_AT_ONCE:
            chosen += [place for place in self._hosts if place not in chosen]
        reason = "they know of none"
        for answer in asyncio.as_completed(
            [self._in_background(self._slot_map_of(p)) for p in chosen]
        ):
            found = await answer
            if isinstance(found, Exception):
                reason = str(found) or "it does not answer"
            elif found:
                self._apply_slot_map(found)
                self._remove_former_nodes()
                return
        raise failures.ClusterError(f"no node tells where the slots are: {reason}")

    async def _slot_map_of(self, place: Place) -> list[SlotRange] | Exception:
        """The map as a node knows it, or why it could not be read."""
        try:
            answer = await self._node(place).ask("CLUSTER", "SLOTS", seconds=_ASK_SECONDS)
        except (failures.RedisError, OSError, RuntimeError) as exc:  # see `Node.send`
            return exc
        return [
            (first, last, [_to_place(node, place[0]) for node in nodes])
            for first, last, *nodes in answer
        ]

    def _apply_slot_map(self, found: list[SlotRange]) -> None:
        """Use this map, and abort commands that wait for a node that has lost its slots."""
        owners: list[Place | None] = [None] * _SLOTS
        for first, last, (place, *_) in found:
            owners[first : last + 1] = [place] * (last + 1 - first)
        self._owners = owners
        self._places = {place for _, _, nodes in found for place in nodes}
        masters = self._masters()
        for place, node in self._nodes.items():
            if place not in masters:
                node.abort_slow_commands(_SLOW_SECONDS)

    def _remove_former_nodes(self) -> None:
        """Forget the nodes that are no longer in the cluster."""
        for place in set(self._nodes) - self._places:
            self._settings.pop(place, None)
            self._checked.discard(place)
            node = self._nodes.pop(place)
            self._removed.add(node)
            self._in_background(self._close_later(node))

    def _in_background(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def _close_later(self, node: Node) -> None:
        """Close a node once no command can be waiting for its answer any more."""
        await asyncio.sleep(self._timeout_seconds)
        await node.close()
        self._removed.discard(node)


def _name(place: Place) -> str:
    return f"{place[0]}:{place[1]}"


def _to_place(node: list[Any], asked_host: str) -> Place:
    """From CLUSTER SLOTS. A node that does not know its own host is at the one that was asked."""
    host, port, *_ = node
    return (host.decode() if host else asked_host), port
