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
Range = tuple[int, int, list[Place]]
"""First and last slot, and the nodes that have them: the master, then its replicas."""
T = TypeVar("T")

_SLOTS = 16384
# In CLUSTER INFO, if every slot is covered or need not be.
_OK = b"cluster_state:ok"
_DOWN = "the cluster is down"
# How many redirections a command follows.
_MOST_MOVES = 16
# How many nodes are asked for the slot map at once, and for how long; the first answer counts.
_ASKED = 3
_ASK_SECONDS = 1.0
# How often the slot map is read while there is trouble.
_LOOK_SECONDS = 0.25
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
    """Nodes are independent: one that is down or hangs does not affect commands to the others.

    The slot map is read again, from other nodes, when a command fails, and repeatedly while a node
    with slots lets commands wait. These are given up once the node has lost its slots to another
    one. A slot that is being migrated belongs to nobody: half of a queue may be on either side, so
    nothing is asked of the new node before it has all of it.
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
        self._asked: set[Place] = set()  # whose settings were read since they were last away
        self._reading: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._is_due = False
        self._background: set[asyncio.Task[Any]] = set()
        self._turn = 0
        self._listened_to: Place | None = None

    @property
    def is_partly_there(self) -> bool:
        return any(node.answers for node in self._nodes.values())

    async def send(
        self, key: str, command: Sequence[Any], deadline: float, replicas: int = 0
    ) -> Any:
        """See `Node.send`. It goes to the node that has the key."""
        slot = key_slot(key.encode())
        slow = asyncio.get_running_loop().call_later(_SLOW_SECONDS, self._look_soon)
        try:
            for _ in range(_MOST_MOVES):
                place = await self._owner(slot)
                try:
                    return await self._node(place).send(command, deadline, replicas)
                except failures.MovedError as exc:
                    self._owners[exc.slot_id] = (exc.host or place[0], exc.port)
                    self._look_soon()  # other slots may have moved as well
            raise failures.ClusterError("the nodes do not agree on who has the queue")
        except _FAILURES:
            self._look_soon()
            raise
        finally:
            slow.cancel()

    async def look_after(self, deadline: float) -> bool:
        """See `Driver`. The settings of a node that was away are read again."""
        await self._know()
        writers = self._writers()
        found = await asyncio.gather(*(self._check(place, deadline) for place in writers))
        failed = [one for one in found if isinstance(one, Exception)]
        if failed:
            self._look_soon()
        if len(failed) == len(found):
            raise failed[0] if failed else failures.ClusterError("no node has any slot")
        return True in found

    async def _check(self, place: Place, deadline: float) -> bool | Exception:
        node = self._node(place)
        try:
            with suppress(failures.NoPermissionError):
                info = await node.send(("CLUSTER", "INFO"), deadline)
                if _OK not in info:
                    node.fail(_DOWN)
                    return failures.ClusterError(_DOWN)
            if place in self._asked:
                return False
            self._settings[place] = await node.settings(deadline)
        except (failures.RedisError, OSError) as exc:
            self._asked.discard(place)
            return exc
        self._asked.add(place)
        return True

    @property
    def settings(self) -> list[Settings | None]:
        return [self._settings.get(place) for place in self._writers()]

    @property
    def nodes(self) -> dict[str, str | None]:
        return {
            _name(place): node.problem
            for place in self._writers()
            if (node := self._nodes.get(place)) is not None
        }

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[tuple[PubSub, Callable[[], bool]]]:
        """A connection of its own for news, and a check whether they still arrive there.

        Every node gets the news of all nodes. After a failure, another node is tried.
        """
        await self._know()
        places = self._writers()
        others = [p for p in places if p != self._listened_to and not self._node(p).is_silent]
        places = others or places
        self._turn += 1
        self._listened_to = place = places[self._turn % len(places)]
        async with self._connect(place) as redis, redis.pubsub() as pubsub:
            yield pubsub, lambda: place in self._owners

    async def close(self) -> None:
        tasks = [task for task in (self._looking, self._reading) if task is not None]
        tasks += self._background
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for node in (*self._nodes.values(), *self._removed):
            await node.close()

    def _writers(self) -> list[Place]:
        return sorted({place for place in self._owners if place is not None})

    def _node(self, place: Place) -> Node:
        node = self._nodes.get(place)
        if node is None:
            connect = partial(self._connect, place)
            node = self._nodes[place] = Node(connect, self._timeout_seconds, _name(place))
        return node

    async def _owner(self, slot: int) -> Place:
        await self._know()
        place = self._owners[slot]
        if place is None:
            raise failures.ClusterError(f"no node has the slot {slot}")
        return place

    # The slot map.

    async def _know(self) -> None:
        if not self._owners:
            await self._read()

    def _look_soon(self) -> None:
        self._is_due = True
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._look())
            self._looking.add_done_callback(self._end_look)

    def _end_look(self, _: asyncio.Task[None]) -> None:
        self._looking = None

    async def _look(self) -> None:
        """Read the map at most every `_LOOK_SECONDS`, and once more after the last failure."""
        while self._is_due or self._is_one_still():
            self._is_due = False
            with suppress(failures.ClusterError):  # callers get the error from their own calls
                await self._read()
            await asyncio.sleep(_LOOK_SECONDS)

    def _is_one_still(self) -> bool:
        return any(
            (node.is_silent or node.waiting(_SLOW_SECONDS)) and place in self._owners
            for place, node in self._nodes.items()
        )

    async def _read(self) -> None:
        """Read the map; concurrent callers share one read. Raises `ClusterError`."""
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read_from_some())
            self._reading.add_done_callback(self._end_reading)
        await asyncio.shield(self._reading)

    def _end_reading(self, task: asyncio.Task[None]) -> None:
        self._reading = None
        if not task.cancelled():
            task.exception()  # retrieved, in case nobody awaits it any more

    async def _read_from_some(self) -> None:
        known = sorted(place for place in self._places if not self._node(place).is_silent)
        self._turn += 1
        first = self._turn % len(known) if known else 0
        chosen = (known[first:] + known[:first])[:_ASKED]
        if len(chosen) < _ASKED:
            chosen += [place for place in self._hosts if place not in chosen]
        reason = "they know of none"
        for answer in asyncio.as_completed([self._in_background(self._ask(p)) for p in chosen]):
            found = await answer
            if isinstance(found, Exception):
                reason = str(found) or "it does not answer"
            elif found:
                self._take(found)
                return
        raise failures.ClusterError(f"no node tells where the slots are: {reason}")

    async def _ask(self, place: Place) -> list[Range] | Exception:
        try:
            answer = await self._node(place).ask("CLUSTER", "SLOTS", seconds=_ASK_SECONDS)
        except (failures.RedisError, OSError, RuntimeError) as exc:  # see `Node.send`
            return exc
        return [
            (first, last, [_place(one, place[0]) for one in holders])
            for first, last, *holders in answer
        ]

    def _take(self, found: list[Range]) -> None:
        owners: list[Place | None] = [None] * _SLOTS
        for first, last, (place, *_) in found:
            owners[first : last + 1] = [place] * (last + 1 - first)
        self._owners = owners
        writers = self._writers()
        self._places = {place for _, _, holders in found for place in holders}
        for place, node in self._nodes.items():
            if place not in writers:
                node.give_up(_SLOW_SECONDS)
        for place in set(self._nodes) - self._places:
            self._settings.pop(place, None)
            self._asked.discard(place)
            node = self._nodes.pop(place)
            self._removed.add(node)
            self._in_background(self._close_later(node))

    def _in_background(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def _close_later(self, node: Node) -> None:
        """Leave time for the answers that others still wait for."""
        await asyncio.sleep(self._timeout_seconds)
        await node.close()
        self._removed.discard(node)


def _name(place: Place) -> str:
    return f"{place[0]}:{place[1]}"


def _place(found: list[Any], asked: str) -> Place:
    """A node that does not know its own address has the one at which it was asked."""
    host, port, *_ = found
    return (host.decode() if host else asked), port
