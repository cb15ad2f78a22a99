"""A large value as MessagePack, piece by piece.

While a value is encoded, no other thread runs. A machine with hundreds of thousands of keys or
delays takes tens of milliseconds, so it is taken apart, and threads can take turns in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeGuard, TypeVar

import msgspec

from penstock.core.recent_keys import KeysDump
from penstock.core.snapshot import MachineSnapshot, QueueSnapshot, SubscriptionSnapshot

__all__ = ["pieces"]

T = TypeVar("T")

# What has more entries is taken apart, into pieces of so many.
_MOST_ENTRIES = 4096

_encode = msgspec.msgpack.Encoder().encode


def pieces(value: msgspec.Struct) -> Iterator[bytes]:
    """Together they are what encoding the value at once would give, as a map of its fields."""
    names = value.__struct_fields__
    yield _map_head(len(names))
    for name in names:
        yield _encode(name)
        yield from _pieces(getattr(value, name))


def _pieces(value: object) -> Iterator[bytes]:
    if isinstance(value, QueueSnapshot) and value.entries <= _MOST_ENTRIES:
        yield _encode(value)
    elif isinstance(value, MachineSnapshot | QueueSnapshot | SubscriptionSnapshot):
        yield from pieces(value)
    elif isinstance(value, KeysDump) or _has_snapshots(value):
        yield _array_head(len(value))
        for each in value:
            yield from _pieces(each)
    elif isinstance(value, list) and len(value) > _MOST_ENTRIES:
        yield _array_head(len(value))
        for part in _parts(value):
            yield _encode(part)[len(_array_head(len(part))) :]
    elif isinstance(value, dict) and len(value) > _MOST_ENTRIES:
        yield _map_head(len(value))
        for part in _parts(value.items()):
            yield _encode(dict(part))[len(_map_head(len(part))) :]
    else:
        yield _encode(value)


def _has_snapshots(value: object) -> TypeGuard[list[object]]:
    return (
        isinstance(value, list)
        and len(value) > 0
        and isinstance(value[0], QueueSnapshot | SubscriptionSnapshot)
    )


def _parts(items: Iterable[T]) -> Iterator[list[T]]:
    left = iter(items)
    while part := list(islice(left, _MOST_ENTRIES)):
        yield part


def _array_head(count: int) -> bytes:
    return _head(0x90, 0xDC, count)


def _map_head(count: int) -> bytes:
    return _head(0x80, 0xDE, count)


def _head(short: int, long: int, count: int) -> bytes:
    """``short`` is for up to 15 entries; ``long`` has a length of two bytes, the next one four."""
    if count < 16:
        return bytes([short | count])
    if count < 1 << 16:
        return bytes([long]) + count.to_bytes(2)
    return bytes([long + 1]) + count.to_bytes(4)
