"""The bodies of ``/api`` and ``/auth``, and how they are read."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, TypeVar

import msgspec
from blacksheep import Response

from penstock.errors import InvalidArgument
from penstock.http.body import read_body
from penstock.http.exchange import IncomingRequest
from penstock.http.gate import answer

__all__ = ["Done", "Form", "Password", "done", "read_form"]

_MAX_BYTES = 64 * 1024

Password = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]


class Form(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Unknown fields are refused: a misspelt one would be ignored silently."""


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """That it worked."""

    success: bool
    message: str


F = TypeVar("F", bound=Form)


async def read_form(request: IncomingRequest, kind: type[F], limit: int = _MAX_BYTES) -> F:
    """Raises `InvalidArgument`, whose text never holds a value: it may be a password."""
    body = await read_body(request, limit)
    try:
        form = msgspec.json.decode(body, type=kind)
        msgspec.json.encode(form)  # fails for half a surrogate pair, which decodes all right
        return form
    except (msgspec.DecodeError, UnicodeError, RecursionError) as exc:
        raise InvalidArgument(f"the body is not as it should be: {exc}") from None


def done(message: str, **more: object) -> Response:
    return answer(HTTPStatus.OK, {"success": True, "message": message, **more})
