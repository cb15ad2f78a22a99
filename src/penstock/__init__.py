"""Penstock: a durable message queue, embedded in your process or served over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from penstock import errors
from penstock.broker import Broker
from penstock.core.callback import Callback
from penstock.core.config import QueueConfig, SubscriptionConfig
from penstock.core.message import DeadLetter, Delivery, Message, NewMessage, PublishedMessage
from penstock.core.publishing import PublishResult
from penstock.core.retry import Backoff
from penstock.core.settling import Outcome
from penstock.core.stats import QueueStats, SubscriptionStats
from penstock.errors import PenstockError
from penstock.storage.base import Ack, AckUpTo, Extend, Nack
from penstock.storage.registry import open_store

if TYPE_CHECKING:
    from penstock.client import AsyncClient, Client

__all__ = [
    "Ack",
    "AckUpTo",
    "AsyncClient",
    "Backoff",
    "Broker",
    "Callback",
    "Client",
    "DeadLetter",
    "Delivery",
    "Extend",
    "Message",
    "Nack",
    "NewMessage",
    "Outcome",
    "PenstockError",
    "PublishResult",
    "PublishedMessage",
    "QueueConfig",
    "QueueStats",
    "SubscriptionConfig",
    "SubscriptionStats",
    "errors",
    "open",
]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # The clients bring an HTTP library, which takes longer to import than all the rest: those who
    # embed the queue need not wait for it.
    if name in ("AsyncClient", "Client"):
        return getattr(import_module("penstock.client"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@asynccontextmanager
async def open(
    url: str | PathLike[str],
    *,
    sync: str = "always",
    segment_bytes: int | None = None,
    cache_bytes: int | None = None,
) -> AsyncIterator[Broker]:
    """Open a store for as long as the block runs, and use it through a `Broker`.

    ``url`` is the path of a data directory, ``wal:<directory>`` or ``memory:``. ``sync`` says when
    a write is answered: ``always`` after it is on the disk, ``interval`` and ``never`` before. One
    process at a time can have a directory open.
    """
    store = await open_store(
        fspath(url), sync=sync, segment_bytes=segment_bytes, cache_bytes=cache_bytes
    )
    async with Broker(store) as broker:
        yield broker
