"""Random graphs of subscriptions, endpoints that fail, and crashes in between.

Whatever happens, nobody is called for a message before all those it comes after have taken it.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from aiohttp import web
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import Backoff, Callback
from penstock.broker import Broker
from penstock.push import LOOPBACK, Dispatcher
from penstock.storage.registry import open_store
from tests.push.receiver import Call, Receiver

QUEUE = "graph"
MESSAGES = 12


class Witness:
    """Knows the graph, answers at random, and notes who was called too early."""

    def __init__(self, parents: dict[str, list[str]], failure_rate: float, rng: random.Random):
        self._parents = parents
        self._failure_rate = failure_rate
        self._rng = rng
        self.taken: dict[str, set[int]] = {name: set() for name in parents}
        self.too_early: list[str] = []

    async def answer(self, call: Call) -> web.StreamResponse:
        name, index = call.subscription, call.index
        self.too_early += [
            f"{name} was called for {index} before {parent} had it"
            for parent in self._parents[name]
            if index not in self.taken[parent]
        ]
        await asyncio.sleep(self._rng.random() * 0.004)
        if self._rng.random() < self._failure_rate:
            return web.Response(status=500)
        self.taken[name].add(index)
        return web.Response()

    def is_done(self) -> bool:
        return all(len(taken) == MESSAGES for taken in self.taken.values())


class Server:
    """A broker on a log, with callbacks, that can crash: what is on the disk then is all it has."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._life = 0

    @property
    def _data(self) -> Path:
        return self._root / f"life-{self._life}"

    async def start(self) -> None:
        self.broker = Broker(await open_store(str(self._data)))
        self._dispatcher = Dispatcher(self.broker, allowed=LOOPBACK, lease_seconds=0.2)
        await self._dispatcher.start()

    async def stop(self) -> None:
        await self._dispatcher.close(grace_seconds=0)
        await self.broker.close()

    async def crash(self) -> None:
        left = self._data
        copy = self._root / f"life-{self._life + 1}"
        shutil.copytree(left, copy)
        await self.stop()
        shutil.rmtree(left)
        self._life += 1
        await self.start()


async def run(parents: dict[str, list[str]], failure_rate: float, crashes: Sequence[int]) -> None:
    witness = Witness(parents, failure_rate, random.Random(5))
    async with Receiver() as receiver:
        receiver.behave = witness.answer
        with TemporaryDirectory() as root:
            server = Server(Path(root))
            await server.start()
            await server.broker.create_queue(QUEUE)
            await server.broker.delete_subscription(QUEUE, "default")
            for name, after in parents.items():
                await server.broker.create_subscription(
                    QUEUE,
                    name,
                    after=after,
                    callback=Callback(url=receiver.url(name), concurrency=3),
                    backoff=Backoff(base_seconds=0.002, jitter=1),
                    max_deliveries=None,
                )
            for number in range(MESSAGES):
                await server.broker.publish(QUEUE, [b"%d" % number])
            for calls in crashes:
                await receiver.wait_for(calls)
                await server.crash()
            await receiver.until(lambda _: witness.is_done() or bool(witness.too_early))
            await server.stop()
    assert witness.too_early == []


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, list[str]]:
    names = list("ABCDEF")[: draw(st.integers(2, 6))]
    return {
        name: draw(st.lists(st.sampled_from(names[:at]), unique=True, max_size=3)) if at else []
        for at, name in enumerate(names)
    }


@settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    parents=graphs(),
    failure_rate=st.sampled_from([0.0, 0.2, 0.4]),
    crashes=st.lists(st.integers(1, 20), max_size=2).map(sorted),
)
def test_nobody_is_called_before_those_it_comes_after(
    parents: dict[str, list[str]], failure_rate: float, crashes: list[int]
) -> None:
    asyncio.run(run(parents, failure_rate, crashes))


def test_the_witness_would_have_noticed() -> None:
    """A call that comes too early is seen as one."""
    witness = Witness({"A": [], "B": ["A"]}, 0.0, random.Random(1))

    async def call_early() -> None:
        async with Receiver() as receiver:
            receiver.behave = witness.answer
            broker = Broker(await open_store("memory:"))
            dispatcher = Dispatcher(broker, allowed=LOOPBACK)
            await dispatcher.start()
            await broker.create_queue(QUEUE)
            # B does not wait for A here
            await broker.create_subscription(QUEUE, "B", callback=Callback(url=receiver.url()))
            await broker.publish(QUEUE, [b"x"])
            await receiver.until(lambda _: bool(witness.too_early))
            await dispatcher.close()
            await broker.close()

    asyncio.run(call_early())
    assert witness.too_early == ["B was called for 0 before A had it"]
