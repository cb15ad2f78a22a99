"""The newest records with messages, in memory."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable
from operator import attrgetter
from typing import Generic, TypeVar

from penstock.core.events import Published
from penstock.storage.wal.codec import decode_published
from penstock.storage.wal.segment import segment_of

__all__ = ["RecordCache"]

_MOST_EVENTS = 256

Value = TypeVar("Value")


class _Newest(Generic[Value]):
    """By locator; the oldest go when there are too many, or too many bytes. One always stays."""

    def __init__(self, most_bytes: int, size: Callable[[Value], int], most: int) -> None:
        self._most_bytes = most_bytes
        self._most = most
        self._size = size
        self._bytes = 0
        # Not a dict: popping the oldest of a dict again and again walks over all deleted entries.
        self._values: OrderedDict[int, Value] = OrderedDict()
        self.get = self._values.get

    def put(self, locator: int, value: Value) -> None:
        values = self._values
        self.drop(locator)
        values[locator] = value
        self._bytes += self._size(value)
        while len(values) > 1 and (self._bytes > self._most_bytes or len(values) > self._most):
            _, oldest = values.popitem(last=False)
            self._bytes -= self._size(oldest)

    def drop(self, locator: int) -> None:
        value = self._values.pop(locator, None)
        if value is not None:
            self._bytes -= self._size(value)

    def forget(self, segment: int) -> None:
        for locator in [at for at in self._values if segment_of(at) == segment]:
            self.drop(locator)

    def clear(self) -> None:
        self._values.clear()
        self._bytes = 0


class RecordCache:
    """Payloads, up to half of ``most_bytes``; and the latest few as events, up to the other half.

    A record of many messages is asked for until all of them were given out, so it is decoded once.
    But not all are kept so: the garbage collector would look at each list of each event again and
    again, and hold everything up meanwhile. Bytes are nothing to it.
    """

    def __init__(self, most_bytes: int) -> None:
        half = most_bytes // 2
        self._payloads: _Newest[bytes] = _Newest(half, len, sys.maxsize)
        self._events: _Newest[Published] = _Newest(half, attrgetter("size"), _MOST_EVENTS)

    def get(self, locator: int) -> Published | None:
        event = self._events.get(locator)
        if event is None:
            payload = self._payloads.get(locator)
            if payload is not None:
                event = decode_published(memoryview(payload), with_bodies=True)
                self._events.put(locator, event)
        return event

    def put(self, locator: int, payload: bytes, event: Published) -> None:
        self._payloads.put(locator, payload)
        self._events.put(locator, event)

    def forget(self, segment: int) -> None:
        """Drop the records of a segment."""
        self._payloads.forget(segment)
        self._events.forget(segment)

    def clear(self) -> None:
        self._payloads.clear()
        self._events.clear()
