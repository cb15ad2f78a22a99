"""Reading a request's body, and never more of it than is allowed."""

from __future__ import annotations

from http import HTTPStatus

from penstock.errors import BatchTooLarge, MessageTooLarge, PenstockError
from penstock.http.errors import Refused
from penstock.http.exchange import ClientGone, Exchange, IncomingRequest

__all__ = ["read_body"]


TooLarge = type[MessageTooLarge] | type[BatchTooLarge]
_ADVICE: dict[TooLarge, str] = {
    MessageTooLarge: "store the content elsewhere and send a reference",
    BatchTooLarge: "send less at once",
}


async def read_body(
    request: IncomingRequest, limit: int, too_large: TooLarge = BatchTooLarge
) -> bytes:
    """Raises ``too_large`` as soon as there are known to be more than ``limit`` bytes.

    Also `Refused`; with 415 if they are compressed: nobody who gets them later would know.
    """
    if b"content-encoding" in request.first:
        _check_coding(request.first[b"content-encoding"])
    stated = request.first.get(b"content-length")
    try:
        if stated is None:
            return await _read_parts(request.exchange, limit, too_large)
        if not stated.isdigit() or len(stated) > 12:
            raise Refused(HTTPStatus.BAD_REQUEST, "Content-Length is not a number")
        if int(stated) > limit:
            raise _error(too_large, limit)
        return await request.exchange.read()
    except ClientGone:
        # Nobody reads the answer, but the log should not call it an error of the server.
        raise Refused(HTTPStatus.BAD_REQUEST, "the request ended before its body did") from None


def _check_coding(coding: bytes) -> None:
    if coding.strip().lower() not in (b"identity", b""):
        raise Refused(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "the body has a Content-Encoding: send it as it is",
            {b"Accept-Encoding": b"identity"},
        )


async def _read_parts(exchange: Exchange, limit: int, too_large: TooLarge) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in exchange.parts():
        size += len(part)
        if size > limit:
            raise _error(too_large, limit)
        parts.append(part)
    return b"".join(parts)


def _error(too_large: TooLarge, limit: int) -> PenstockError:
    return too_large(f"the body has more than the allowed {limit} bytes: {_ADVICE[too_large]}")
