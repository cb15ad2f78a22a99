"""``penstock ingest``: run a handler over everything that is ingested."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer

from penstock.cli.exits import fail_store
from penstock.cli.progress import counting
from penstock.errors import InvalidArgument, PenstockError
from penstock.ingest import IngestMessage, IngestQueue, IngestSettings
from penstock.ingest import open as open_ingest

__all__ = ["app"]

app = typer.Typer(name="ingest", help="Handle ingested messages.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    pass


@app.command()
def run(
    handler: Annotated[
        str, typer.Option(help="package.module:function, called with a batch of messages.")
    ],
    store: Annotated[
        str, typer.Option(help="wal:<directory> or redis://...", envvar="PENSTOCK_DATA")
    ] = "wal:./data",
    kind: Annotated[
        str | None,
        typer.Option("--type", help="package.module:Type of the messages. [IngestMessage]"),
    ] = None,
    tenant: Annotated[
        list[str] | None, typer.Option(help="Only of this tenant; may be given again.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Messages a call.")] = 100,
    concurrency: Annotated[int, typer.Option(min=1, help="Calls at once.")] = 1,
    lease_seconds: Annotated[
        float, typer.Option(help="How soon a batch is delivered again when this process dies.")
    ] = 30.0,
    prefix: Annotated[str, typer.Option(help="Prefix of the queues' names.")] = "ingest",
    once: Annotated[bool, typer.Option(help="Stop when nothing is left.")] = False,
) -> None:
    """Have every message handled, until Ctrl-C: then the batches that run are finished first."""
    # As with `python -m`, modules in the current directory can be named.
    sys.path.insert(0, os.getcwd())
    try:
        settings = IngestSettings(prefix=prefix, lease_seconds=lease_seconds)
        wanted = _load(kind) if kind else IngestMessage
        call = _load(handler)
        if not callable(call):
            # Each batch would fail, until all of its messages are dead letters.
            raise InvalidArgument(f"the handler {handler!r} is no function: name one")
        work = _Work(call, tenant or [], batch_size, concurrency, once)
        asyncio.run(_run(store, wanted, settings, work))
    except (PenstockError, OSError) as exc:
        fail_store(exc)


def _load(name: str) -> Any:
    module, _, attribute = name.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as exc:
        raise InvalidArgument(
            f"there is no {name!r} ({exc}): name it as package.module:function"
        ) from exc


class _Work(NamedTuple):
    """What is to be handled, and how. Without tenants it is those of all."""

    handler: Any
    tenants: list[str]
    batch_size: int
    concurrency: int
    once: bool

    async def consume(
        self, queue: IngestQueue[Any], stopping: asyncio.Event, count: Callable[[int], None]
    ) -> None:
        """Handle batches until it is stopped or, with `once`, nothing is left."""
        turn = 0
        while not stopping.is_set():
            if self.tenants:
                tenant = self.tenants[turn % len(self.tenants)]
                turn += 1
                done = await queue.consume_for_tenant(
                    tenant, self.batch_size, self.handler, wait_seconds=0.5
                )
            else:
                done = await queue.consume(self.batch_size, self.handler)
            count(done)
            if self.once and not done and not await self._left(queue):
                return

    async def _left(self, queue: IngestQueue[Any]) -> int:
        tenants = self.tenants or await queue.tenants()
        return sum([await queue.pending_count(tenant) for tenant in tenants])


async def _run(store: str, kind: type[Any], settings: IngestSettings, work: _Work) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, stopping.set)
    async with open_ingest(kind, store, settings) as queue:
        with counting("messages handled", None) as count:
            await asyncio.gather(
                *(work.consume(queue, stopping, count) for _ in range(work.concurrency))
            )
