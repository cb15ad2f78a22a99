"""Penstock: a durable message queue, embedded in your process or served over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from penstock import errors
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.broker import Broker
    from penstock.client import AsyncClient, Client
    from penstock.core.callback import Callback
    from penstock.core.config import QueueConfig, SubscriptionConfig
    from penstock.core.message import DeadLetter, Delivery, Message, NewMessage, PublishedMessage
    from penstock.core.outcome import Outcome
    from penstock.core.publishing import PublishResult
    from penstock.core.retry import Backoff
    from penstock.core.stats import (
        DefinedSubscription,
        EnsuredQueue,
        EnsuredSubscription,
        QueueStats,
        SubscriptionStats,
    )
    from penstock.storage.base import Ack, AckUpTo, Extend, GiveBack, Nack

__all__ = [
    "Ack",
    "AckUpTo",
    "AsyncClient",
    "Backoff",
    "Broker",
    "Callback",
    "Client",
    "DeadLetter",
    "DefinedSubscription",
    "Delivery",
    "EnsuredQueue",
    "EnsuredSubscription",
    "Extend",
    "GiveBack",
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


# Imported when they are first used: a client needs no broker, an embedded queue no HTTP library,
# and `penstock --help` neither.
_HOMES = {
    "Ack": "penstock.storage.base",
    "AckUpTo": "penstock.storage.base",
    "AsyncClient": "penstock.client",
    "Backoff": "penstock.core.retry",
    "Broker": "penstock.broker",
    "Callback": "penstock.core.callback",
    "Client": "penstock.client",
    "DeadLetter": "penstock.core.message",
    "DefinedSubscription": "penstock.core.stats",
    "Delivery": "penstock.core.message",
    "EnsuredQueue": "penstock.core.stats",
    "EnsuredSubscription": "penstock.core.stats",
    "Extend": "penstock.storage.base",
    "GiveBack": "penstock.storage.base",
    "Message": "penstock.core.message",
    "Nack": "penstock.storage.base",
    "NewMessage": "penstock.core.message",
    "Outcome": "penstock.core.outcome",
    "PublishResult": "penstock.core.publishing",
    "PublishedMessage": "penstock.core.message",
    "QueueConfig": "penstock.core.config",
    "QueueStats": "penstock.core.stats",
    "SubscriptionConfig": "penstock.core.config",
    "SubscriptionStats": "penstock.core.stats",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


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
    from penstock.broker import Broker
    from penstock.storage.registry import open_store

    store = await open_store(
        fspath(url), sync=sync, segment_bytes=segment_bytes, cache_bytes=cache_bytes
    )
    async with Broker(store) as broker:
        yield broker
