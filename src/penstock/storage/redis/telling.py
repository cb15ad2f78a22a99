"""Lifecycle events: from the list where scripts put them to the events queue.

A script that changes a queue with the setting `events` adds what happened to a list, in the same
atomic step. Scripts cannot apply filters, so a server publishes it, in another atomic step that
moves it from the list to the queue: each row is published once, by whichever server comes first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from penstock.core.lifecycle import EVENTS_CONTENT_TYPE, Kind, LifecycleRun, bodies_of
from penstock.core.message import Envelope
from penstock.core.publishing import NewBatch
from penstock.errors import MemoryFull, QueueNotFound
from penstock.storage.redis.messages import MICROSECONDS
from penstock.storage.redis.steps import Steps

__all__ = ["Telling"]

_ENVELOPE = Envelope(content_type=EVENTS_CONTENT_TYPE)
_HEAD = _ENVELOPE.encode()
# How many commands' events are published at a time.
_MOST = 1000


class _Row(msgspec.Struct, frozen=True, array_like=True):
    """A row of `events.lua`. Times are in microseconds."""

    event: Kind
    start: int
    stop: int
    published: int
    at: int
    subscription: str
    deliveries: int
    reason: str
    topic: str


_decode = msgspec.msgpack.Decoder(list[_Row]).decode

Publish = Callable[[str, NewBatch, str], Awaitable[object]]
"""The queue, the messages, and which events they are: see `publish.lua`."""


class Telling:
    """One per server; several servers may do this at once."""

    def __init__(self, steps: Steps, publish: Publish) -> None:
        self._steps = steps
        self._publish = publish

    async def tell(self, queue: str) -> None:
        """On return, the events queue has everything that had happened when this was called.

        Unless it is gone, or is being rebuilt: then it gets that later, if it comes back. The same
        if Redis has no memory left: what frees some must not fail because of it.
        """
        key = self._steps.keys.queue(queue)
        while True:
            told, entries = await self._steps.run("untold", key, _MOST)
            if not entries:
                return
            bodies = [body for entry in entries for body in bodies_of(_runs(entry))]
            count = len(bodies)
            size = sum(map(len, bodies)) + len(_HEAD) * count
            batch = NewBatch(bodies, [_ENVELOPE] * count, [_HEAD] * count, size)
            try:
                await self._publish(queue, batch, f"{told.decode()}:{len(entries)}")
            except (QueueNotFound, MemoryFull):
                return


def _runs(entry: bytes) -> list[LifecycleRun]:
    return [
        LifecycleRun(
            event=row.event,
            start=row.start,
            stop=row.stop,
            published_ns=row.published * MICROSECONDS,
            at_ns=row.at * MICROSECONDS,
            subscription=row.subscription or None,
            deliveries=row.deliveries or None,
            reason=row.reason or None,
            topic=row.topic or None,
        )
        for row in _decode(entry)
    ]
