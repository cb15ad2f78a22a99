"""``penstock bench``."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from penstock.cli.connection import Connection, with_connection
from penstock.cli.options import AsJson
from penstock.cli.output import add_row, number, print_json, show, table

if TYPE_CHECKING:
    from penstock.client import AsyncClient

__all__ = ["bench"]

_CONSUMERS = 4


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """What was done, and how long the calls took."""

    name: str
    messages: int
    calls: int
    seconds: float
    per_second: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float


@with_connection
def bench(
    connection: Connection,
    messages: Annotated[
        int, typer.Option("--messages", "-n", help="How many.", min=1, max=10_000_000)
    ] = 10_000,
    size: Annotated[int, typer.Option(help="Bytes of a body.", min=0, max=1024 * 1024)] = 256,
    concurrency: Annotated[
        int, typer.Option("--concurrency", "-c", help="Callers at once.", min=1, max=1000)
    ] = 32,
    batch: Annotated[
        int, typer.Option(help="Messages that a caller publishes at a time.", min=1, max=10_000)
    ] = 1,
    receive: Annotated[int, typer.Option(help="Messages in a receive.", min=1, max=1000)] = 100,
    as_json: AsJson = False,
) -> None:
    """Put a short load on a running server.

    Publishes messages to a queue of its own, receives and acks them, says how many a second and how
    long a call took, and deletes the queue. Callers share requests, as those of any client do.
    """
    phases = asyncio.run(_bench(connection, messages, size, concurrency, batch, receive))
    if as_json:
        print_json({"messages": messages, "size": size, "phases": phases})
        return
    numbers = ("messages/s", "calls", "p50 ms", "p90 ms", "p99 ms", "max ms")
    shown = table("", *numbers, right=numbers)
    for one in phases:
        times = (one.p50_ms, one.p90_ms, one.p99_ms, one.max_ms)
        add_row(
            shown,
            one.name,
            number(one.per_second),
            number(one.calls),
            *(f"{each:.2f}" for each in times),
        )
    show(shown)


async def _bench(
    connection: Connection, messages: int, size: int, concurrency: int, batch: int, receive: int
) -> list[Phase]:
    from penstock.client import AsyncClient

    queue = f"bench-{secrets.token_hex(8)}"
    options = connection.options()
    async with AsyncClient(connection.url, **options) as client:
        # Nothing is sent twice in a short load, and the keys would stay in the server's memory.
        making = asyncio.create_task(client.create_queue(queue, dedup_window_seconds=0))
        try:
            await asyncio.shield(making)
            return [
                await _publish(client, queue, messages, size, concurrency, batch),
                await _consume(client, queue, messages, concurrency, receive),
            ]
        finally:
            # An interrupt while the queue is being created must not leave it behind.
            await making
            await client.delete_queue(queue)


async def _publish(
    client: AsyncClient, queue: str, messages: int, size: int, concurrency: int, batch: int
) -> Phase:
    body = b"x" * size
    left = messages

    async def step() -> int:
        nonlocal left
        count = min(batch, left)
        left -= count
        if count:
            await client.publish(queue, [body] * count)
        return count

    return await _phase("publish", messages, concurrency, step)


async def _consume(
    client: AsyncClient, queue: str, messages: int, concurrency: int, receive: int
) -> Phase:
    left = messages

    async def step() -> int:
        nonlocal left
        if left <= 0:
            return 0
        found = await client.receive(queue, limit=receive)
        if found:
            await client.ack(queue, found)
        left -= len(found)
        return len(found)

    # With more consumers, what they have received would mostly wait for its turn.
    callers = min(concurrency, _CONSUMERS)
    return await _phase("receive + ack", messages, callers, step)


async def _phase(
    name: str, messages: int, concurrency: int, step: Callable[[], Awaitable[int]]
) -> Phase:
    """Every caller repeats the step until one does nothing."""
    from penstock.cli.progress import counting

    times: list[float] = []
    with counting(name, messages) as advance:

        async def caller() -> None:
            while True:
                began = time.perf_counter()
                count = await step()
                if not count:
                    return
                times.append(time.perf_counter() - began)
                advance(count)

        began = time.perf_counter()
        callers = [asyncio.create_task(caller()) for _ in range(concurrency)]
        try:
            await asyncio.gather(*callers)
        finally:
            for one in callers:
                one.cancel()
        seconds = time.perf_counter() - began
    times.sort()
    return Phase(
        name=name,
        messages=messages,
        calls=len(times),
        seconds=seconds,
        per_second=messages / seconds,
        p50_ms=_percentile(times, 0.5),
        p90_ms=_percentile(times, 0.9),
        p99_ms=_percentile(times, 0.99),
        max_ms=times[-1] * 1000,
    )


def _percentile(times: list[float], part: float) -> float:
    """In milliseconds; ``times`` are sorted, and in seconds."""
    return times[min(len(times) - 1, int(part * len(times)))] * 1000
