"""Errors over HTTP: the status of each, and the body that describes it."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Literal

import msgspec

from penstock import errors
from penstock.core.message import to_datetime

__all__ = [
    "Problem",
    "Refusal",
    "Refused",
    "error_body",
    "problem_body",
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


class Refused(Exception):
    """A request that the HTTP layer itself turns down."""

    def __init__(
        self, status: HTTPStatus, message: str, headers: Mapping[bytes, bytes] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers or {}


def unauthorized(message: str) -> Refused:
    """A 401, which names the two ways to authenticate."""
    challenge = b'Basic realm="penstock", Bearer realm="penstock"'
    return Refused(HTTPStatus.UNAUTHORIZED, message, {b"WWW-Authenticate": challenge})


def status_of(error: errors.PenstockError) -> HTTPStatus:
    return next(_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS)


def error_body(
    status: HTTPStatus, message: str, *, code: str, path: str, request_id: str, now_ns: int
) -> dict[str, object]:
    """LightQ's error body, with our stable `code` added."""
    now = to_datetime(now_ns).replace(tzinfo=None)
    return {
        "timestamp": now.isoformat(timespec="seconds"),
        "status": int(status),
        "error": status.phrase,
        "message": message,
        "path": path,
        "requestId": request_id,
        "code": code,
    }


class Refusal(msgspec.Struct, kw_only=True):
    """An error of `/api` and `/auth`. `code` is stable: programs may compare it."""

    success: Literal[False] = False
    message: str
    code: str


class Problem(msgspec.Struct, kw_only=True):
    """An error in the form of RFC 9457. `code` is stable: programs may compare it."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    instance: str
    code: str
    request_id: str


def problem_body(
    status: HTTPStatus, message: str, *, code: str, path: str, request_id: str
) -> Problem:
    return Problem(
        title=status.phrase,
        status=int(status),
        detail=message,
        instance=path,
        code=code,
        request_id=request_id,
    )
