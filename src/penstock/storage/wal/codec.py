"""Events as records of the log.

Every event but `Published` is MessagePack, the way `penstock.core.events` declares it. `Published`
carries the bodies and has a layout of its own, so that a batch is written with one copy and read
by slicing::

    queue_id    u32
    first       u64   index of the first message
    at_ns       i64
    count       u32
    has_heads   u8    whether any message has an envelope
    extra       u32   bytes of MessagePack: [matches by feed, filter errors by feed, keys]; often 0
    body sizes  u32 x count
    head sizes  u32 x count, if has_heads
    extra, heads, bodies

All integers are little-endian. The kind of a record is the tag of its event.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate, pairwise
from struct import Struct, unpack_from
from struct import error as StructError  # noqa: N812 - it is a class, whatever its name says
from sys import byteorder
from typing import get_args

import msgspec

from penstock.core import events as ev
from penstock.core.bodies import PackedBodies
from penstock.core.message import PLAIN, Envelope
from penstock.core.request_keys import PastRequest
from penstock.errors import NewerFormat
from penstock.storage.block import Block

__all__ = [
    "PUBLISHED",
    "UNREADABLE",
    "decode",
    "decode_block",
    "decode_published",
    "encode",
    "kind_name",
]

PUBLISHED = 30

UNREADABLE = (msgspec.MsgspecError, StructError)
"""What decoding raises for a payload that is not an event."""

_HEADER = Struct("<IQqIBI")
_U32 = Struct("<I")

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[ev.Event] = msgspec.msgpack.Decoder(ev.Event)


class _Extra(msgspec.Struct, array_like=True):
    matched: dict[int, list[int]]
    errors: dict[int, int]
    keys: dict[str, PastRequest] = {}


_extra_decoder = msgspec.msgpack.Decoder(_Extra)
_NOTHING = _Extra({}, {})

_KINDS: dict[type, int] = {kind: kind.__struct_config__.tag for kind in get_args(ev.Event)}
_NAMES = {tag: kind.__name__ for kind, tag in _KINDS.items()}


def kind_name(kind: int) -> str:
    """The name of a record's kind, to be shown to people."""
    return _NAMES.get(kind, f"unknown kind {kind}")


def encode(event: ev.Event) -> tuple[int, tuple[bytes | memoryview, ...]]:
    """The record's kind, and its payload in parts."""
    if isinstance(event, ev.Published):
        return PUBLISHED, _encode_published(event)
    return _KINDS[type(event)], (_encoder.encode(event),)


def _encode_published(event: ev.Published) -> tuple[bytes | memoryview, ...]:
    bodies, heads = event.bodies, event.heads
    extra = b""
    if event.keys:
        extra = _encoder.encode((event.matched, event.filter_errors, event.keys))
    elif event.matched or event.filter_errors:
        extra = _encoder.encode((event.matched, event.filter_errors))
    header = _HEADER.pack(
        event.queue_id, event.first, event.at_ns, event.count, heads is not None, len(extra)
    )
    if event.count == 1:
        if heads is None:
            return header, _U32.pack(len(bodies[0])), extra, bodies[0]
        sizes = _U32.pack(len(bodies[0])) + _U32.pack(len(heads[0]))
        return header, sizes, extra, heads[0], bodies[0]
    if heads is None:
        if isinstance(bodies, PackedBodies):
            return header, _little(bodies.sizes[:]), extra, bodies.data
        return (header, _sizes(bodies), extra, *bodies)
    return (header, _sizes(bodies), _sizes(heads), extra, *heads, *bodies)


def _sizes(parts: Sequence[bytes]) -> bytes:
    return _little(array("I", [*map(len, parts)]))


def _little(sizes: array[int]) -> bytes:
    if byteorder == "big":
        sizes.byteswap()
    return sizes.tobytes()


def decode(kind: int, payload: memoryview) -> ev.Event:
    """The event, without bodies. Raises `NewerFormat` for an unknown kind.

    A payload that is not an event raises one of `UNREADABLE`.
    """
    if kind == PUBLISHED:
        return decode_published(payload, with_bodies=False)
    if kind not in _NAMES:
        raise NewerFormat(
            f"the log holds a record of kind {kind}, which this Penstock does not know: "
            "upgrade Penstock"
        )
    return _decoder.decode(payload)


def decode_published(payload: memoryview, *, with_bodies: bool) -> ev.Published:
    queue_id, first, at_ns, count, has_heads, extra_size = _HEADER.unpack_from(payload)
    at = _HEADER.size
    body_sizes = unpack_from(f"<{count}I", payload, at)
    at += 4 * count
    head_sizes: tuple[int, ...] = ()
    if has_heads:
        head_sizes = unpack_from(f"<{count}I", payload, at)
        at += 4 * count
    extra = _NOTHING
    if extra_size:
        extra = _extra_decoder.decode(payload[at : at + extra_size])
        at += extra_size
    envelopes: list[Envelope] | None = None
    if has_heads:
        envelopes = []
        for size in head_sizes:
            envelopes.append(Envelope.decode(payload[at : at + size]) if size else PLAIN)
            at += size
    bodies: list[bytes] = []
    if with_bodies:
        data = bytes(payload[at:])
        bodies = [data[a:b] for a, b in pairwise(accumulate(body_sizes, initial=0))]
    return ev.Published(
        at_ns=at_ns,
        queue_id=queue_id,
        first=first,
        count=count,
        size=sum(body_sizes) + sum(head_sizes),
        envelopes=envelopes,
        matched=extra.matched,
        filter_errors=extra.errors,
        keys=extra.keys,
        bodies=bodies,
    )


def decode_block(payload: memoryview) -> tuple[int, Block]:
    """The id of the queue, and its messages, without copying them."""
    queue_id, first, at_ns, count, has_heads, extra_size = _HEADER.unpack_from(payload)
    at = _HEADER.size
    sizes = array("I", payload[at : at + 4 * count].tobytes())
    at += 4 * count
    heads: list[memoryview] | None = None
    if has_heads:
        head_sizes = unpack_from(f"<{count}I", payload, at)
        at += 4 * count + extra_size
        heads = []
        for size in head_sizes:
            heads.append(payload[at : at + size])
            at += size
    else:
        at += extra_size
    return queue_id, Block(first, first, at_ns, sizes, payload[at:], heads)
