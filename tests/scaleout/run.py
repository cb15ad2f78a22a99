"""One fault under load: everything is accounted for, and what it cost is counted."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import msgspec

from penstock import AsyncClient
from penstock.core.config import QueueConfig, SubscriptionConfig
from penstock.core.machine import Machine
from penstock.core.message import parse_message_id
from penstock.errors import QueueNotFound
from penstock.storage import base
from penstock.storage.memory import MemoryStore
from tests.crash import report
from tests.crash.load import IMPATIENT, Load
from tests.crash.witness import Witness
from tests.simulation.checker import Checker
from tests.simulation.clock import VirtualClock
from tests.simulation.history import History, Violation

__all__ = ["END_SECONDS", "Cost", "check", "run_fault"]

# Shorter than a lease, so that who waits for a paused server asks another in time.
_TIMEOUT_SECONDS = 1.5
# If it takes longer, something hangs.
END_SECONDS = 180


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing was lost, or there would be none.

    ``twice`` of the ``given`` messages, counted by subscription, came to clients more than once.
    ``refusals`` are requests that got no answer or 503; each was repeated with another server. The
    longest publish is from the first attempt to its answer, the longest wait from there to the
    first delivery.
    """

    published: int
    given: int
    twice: int
    refusals: int
    longest_publish_seconds: float
    longest_wait_seconds: float


async def run_fault(
    urls: Sequence[str], happen: Callable[[Load], Awaitable[None]], messages: int
) -> Cost:
    """So many messages before it and after it. Raises AssertionError with the history."""
    async with AsyncClient(urls[0], username="admin", password="adminpassword") as client:
        with suppress(QueueNotFound):
            await client.delete_queue(report.QUEUE)
    async with Load(*urls, retry=IMPATIENT, timeout_seconds=_TIMEOUT_SECONDS, left=0) as load:
        await load.go_on(messages)
        await happen(load)
        async with asyncio.timeout(END_SECONDS):
            await load.go_on(messages)
            await load.drain()
    await check(load.lines)
    return _cost(load)


async def check(lines: Sequence[report.Line]) -> None:
    """Jepsen's total queue, and all else that the checker of the simulation knows."""
    history = History(VirtualClock(time.time_ns()))
    checker = Checker(history)
    machine = await _definitions(_salt(lines))
    try:
        Witness(history, checker).hear(lines, machine)
        queue = machine.queue(report.QUEUE)
        for subscription in queue.subscriptions.values():
            checker.check_nothing_lost(queue, subscription, set(), set(), time.time_ns())
    except Violation as exc:
        raise AssertionError(f"{exc}\n{history.about(exc.words)}") from exc


async def _definitions(salt: int) -> Machine:
    """Those of the load, as the checker wants to look them up."""
    store = MemoryStore()
    await store.define(base.CreateQueue(queue=report.QUEUE, config=QueueConfig()))
    settings = {"max_deliveries": None}
    await store.define(
        base.AlterSubscription(queue=report.QUEUE, subscription=report.FIRST, changes=settings)
    )
    second = SubscriptionConfig(after=(report.FIRST,), max_deliveries=None)
    await store.define(
        base.CreateSubscription(
            queue=report.QUEUE, subscription=report.SECOND, config=second, start="earliest"
        )
    )
    await store.close()
    store.machine.queue(report.QUEUE).salt = salt
    return store.machine


def _salt(lines: Sequence[report.Line]) -> int:
    first = next(line for line in lines if isinstance(line, report.Published))
    parsed = parse_message_id(first.entries[0][1])
    assert parsed is not None
    return parsed.salt


def _cost(load: Load) -> Cost:
    asked: dict[int, report.Publish | report.Receive] = {}
    waiting: dict[tuple[str, int], int] = {}
    given: Counter[tuple[str, int]] = Counter()
    publishes, waits = [0], [0]
    published = 0
    for line in load.lines:
        match line:
            case report.Publish() | report.Receive():
                asked[line.call] = line
            case report.Published():
                published += len(line.entries)
                publishes.append(line.at_ns - asked[line.call].at_ns)
                for index, _ in line.entries:
                    waiting[report.FIRST, index] = line.at_ns
            case report.Received():
                receive = asked[line.call]
                assert isinstance(receive, report.Receive)
                for delivery in line.deliveries:
                    spot = (receive.subscription, delivery.index)
                    given[spot] += 1
                    since = waiting.pop(spot, None)
                    if since is not None:
                        waits.append(line.at_ns - since)
            case _:
                pass
    return Cost(
        published=published,
        given=len(given),
        twice=sum(1 for times in given.values() if times > 1),
        refusals=load.refusals,
        longest_publish_seconds=max(publishes) / 1e9,
        longest_wait_seconds=max(waits) / 1e9,
    )
