"""Reading a request's body without ever holding more than is allowed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import cast

from blacksheep import Request
from blacksheep.exceptions import MessageAborted

from penstock.http.errors import Refused

__all__ = ["read_body"]


async def read_body(request: Request, limit: int) -> bytes:
    """Raises `Refused`: 413 as soon as it is known that there are more than ``limit`` bytes."""
    stated = request.get_first_header(b"content-length")
    try:
        if stated is None:
            return await _read_parts(request, limit)
        if not stated.isdigit() or len(stated) > 12:
            raise Refused(HTTPStatus.BAD_REQUEST, "Content-Length is no number")
        if int(stated) > limit:
            raise _too_large(limit)
        content = request.content
        return await content.read() if content is not None else b""
    except MessageAborted:
        # Nobody reads the answer, but it is no error of the server's.
        raise Refused(HTTPStatus.BAD_REQUEST, "the request ended before its body did") from None


async def _read_parts(request: Request, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in cast(AsyncIterator[bytes], request.stream()):
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
    return b"".join(parts)


def _too_large(limit: int) -> Refused:
    return Refused(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body has more than the allowed {limit} bytes"
    )
