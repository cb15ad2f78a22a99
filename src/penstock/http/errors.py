"""Errors over HTTP: the status of each, and the body that describes it."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import ClassVar, Literal, NamedTuple, Self

import msgspec

from penstock import errors
from penstock.core.message import to_datetime

__all__ = [
    "ErrorForm",
    "LightQError",
    "Occasion",
    "Problem",
    "Refusal",
    "Refused",
    "refusal_of",
    "status_of",
    "unauthorized",
]

# An error has the status of the nearest class above it in the tree.
_STATUS: dict[type[errors.PenstockError], HTTPStatus] = {
    errors.InvalidRequest: HTTPStatus.BAD_REQUEST,
    errors.MessageTooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    errors.BatchTooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    errors.MissingExtra: HTTPStatus.NOT_ACCEPTABLE,
    errors.NotFound: HTTPStatus.NOT_FOUND,
    errors.Conflict: HTTPStatus.CONFLICT,
    errors.QueueFull: HTTPStatus.TOO_MANY_REQUESTS,
    errors.StorageError: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.DiskFull: HTTPStatus.INSUFFICIENT_STORAGE,
    errors.MemoryFull: HTTPStatus.INSUFFICIENT_STORAGE,
    errors.StoreUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.CorruptLog: HTTPStatus.INTERNAL_SERVER_ERROR,
    errors.PenstockError: HTTPStatus.INTERNAL_SERVER_ERROR,
}
# These may be gone in a moment, so the answer says when to try again.
_PASSING = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)


class Refused(Exception):
    """A request that is turned down. Without a ``code`` it is the status by its name."""

    def __init__(
        self,
        status: HTTPStatus,
        message: str,
        headers: Mapping[bytes, bytes] | None = None,
        *,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code or status.name.lower()
        self.headers = headers or {}


def unauthorized(message: str) -> Refused:
    """A 401, which names the two ways to authenticate."""
    challenge = b'Basic realm="penstock", Bearer realm="penstock"'
    return Refused(HTTPStatus.UNAUTHORIZED, message, {b"WWW-Authenticate": challenge})


def refusal_of(error: errors.PenstockError) -> Refused:
    """What an error of the broker is over HTTP."""
    status = status_of(error)
    headers = {b"Retry-After": b"1"} if status in _PASSING else None
    return Refused(status, str(error), headers, code=error.code)


def status_of(error: errors.PenstockError) -> HTTPStatus:
    return next(_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS)


class Occasion(NamedTuple):
    """The request that was refused, and when."""

    path: str
    request_id: str
    now_ns: int


class LightQError(msgspec.Struct, kw_only=True, rename="camel"):
    """An error as LightQ describes it, with our stable `code` added. Times are in UTC."""

    content_type: ClassVar[str] = "application/json"

    timestamp: str
    status: int
    error: str
    message: str
    path: str
    request_id: str
    code: str

    @classmethod
    def make(cls, refused: Refused, occasion: Occasion) -> Self:
        now = to_datetime(occasion.now_ns).replace(tzinfo=None)
        return cls(
            timestamp=now.isoformat(timespec="seconds"),
            status=int(refused.status),
            error=refused.status.phrase,
            message=str(refused),
            path=occasion.path,
            request_id=occasion.request_id,
            code=refused.code,
        )


class Refusal(msgspec.Struct, kw_only=True):
    """An error of `/api` and `/auth`. `code` is stable: programs may compare it."""

    content_type: ClassVar[str] = "application/json"

    success: Literal[False] = False
    message: str
    code: str

    @classmethod
    def make(cls, refused: Refused, occasion: Occasion) -> Self:
        return cls(message=str(refused), code=refused.code)


class Problem(msgspec.Struct, kw_only=True):
    """An error in the form of RFC 9457. `code` is stable: programs may compare it."""

    content_type: ClassVar[str] = "application/problem+json"

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    instance: str
    code: str
    request_id: str

    @classmethod
    def make(cls, refused: Refused, occasion: Occasion) -> Self:
        return cls(
            title=refused.status.phrase,
            status=int(refused.status),
            detail=str(refused),
            instance=occasion.path,
            code=refused.code,
            request_id=occasion.request_id,
        )


ErrorForm = type[LightQError] | type[Refusal] | type[Problem]
"""What the errors of a route look like."""
