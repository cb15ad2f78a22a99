"""JSON arrays of messages that may be long: read and encoded as fast as the client takes them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import TypeVar

import msgspec
from blacksheep import Content, Response, StreamedContent

from penstock.core.limits import MAX_BODY_BYTES
from penstock.core.message import Message

__all__ = ["PART", "array_answer", "in_parts"]

# How many messages are read at a time. Each may have a body of `MAX_BODY_BYTES`.
PART = 16
_WHOLE_BYTES = PART * MAX_BODY_BYTES // 2
_JSON = b"application/json"

Read = TypeVar("Read", bound=Message)

_encode = msgspec.json.Encoder().encode


async def in_parts(
    read: Callable[[int, int], Awaitable[list[Read]]], limit: int, start: int = 0
) -> AsyncIterator[list[Read]]:
    """Up to ``limit`` messages. ``read`` is given an index to begin at, and how many to read."""
    at = start
    while limit > 0:
        count = min(PART, limit)
        part = await read(at, count)
        yield part
        if len(part) < count:
            return
        at = part[-1].index + 1
        limit -= count


async def array_answer(
    parts: AsyncIterator[Sequence[object]], *, before: bytes = b"[", after: bytes = b"]"
) -> Response:
    """All elements of all parts in one array, between ``before`` and ``after``.

    Up to `_WHOLE_BYTES` it is answered in one piece. Beyond, a part is read when the client has
    taken what came before: one that does not read takes the memory of two parts at most.
    If a part cannot be read then, it is too late for an error, and the connection is cut.
    """
    beginning = before
    is_empty = True
    async for part in parts:
        if part:
            beginning += _elements(part, is_first=is_empty)
            is_empty = False
        if len(beginning) > _WHOLE_BYTES:
            break
    else:
        return Response(HTTPStatus.OK, content=Content(_JSON, beginning + after))

    async def stream() -> AsyncIterator[bytes]:
        nonlocal beginning
        yield beginning
        beginning = b""
        async for part in parts:
            if part:
                yield _elements(part, is_first=False)
        yield after

    return Response(HTTPStatus.OK, content=StreamedContent(_JSON, stream))


def _elements(part: Sequence[object], *, is_first: bool) -> bytes:
    encoded = b",".join(map(_encode, part))
    return encoded if is_first else b"," + encoded
