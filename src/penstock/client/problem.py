"""Problems (RFC 9457): how a server refuses, and which error that is in the client."""

from __future__ import annotations

import msgspec

from penstock import errors
from penstock.client.errors import (
    ClientError,
    Forbidden,
    ServerFailed,
    TooManyRequests,
    Unauthorized,
)
from penstock.errors import PenstockError

__all__ = ["Problem", "error_of"]


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a refusal, as far as a client looks at it."""

    code: str = ""
    title: str = ""
    detail: str = ""
    message: str = ""  # what the other APIs call `detail`
    request_id: str = ""


def _subclasses(kind: type[PenstockError]) -> list[type[PenstockError]]:
    return [kind, *(deep for direct in kind.__subclasses__() for deep in _subclasses(direct))]


_BY_CODE: dict[str, type[PenstockError]] = {
    kind.code: kind
    for kind in [
        *(value for value in vars(errors).values() if isinstance(value, type)),
        *_subclasses(ClientError),
    ]
    if issubclass(kind, PenstockError)
}

# For codes that this version does not know.
_BY_STATUS: dict[int, type[PenstockError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    429: TooManyRequests,
    503: errors.StorageError,
    507: errors.DiskFull,
}

_decoder = msgspec.json.Decoder(Problem)


def error_of(status: int, body: bytes) -> PenstockError:
    """The error for an answer of 400 or more, with the request's id as a note."""
    try:
        problem = _decoder.decode(body)
    except msgspec.DecodeError:
        # A proxy in between answers in its own words.
        problem = Problem(detail=body[:200].decode("utf-8", "replace").strip())
    kind = _BY_CODE.get(problem.code) or _BY_STATUS.get(status) or _by_class(status)
    text = problem.detail or problem.message or problem.title or "the server gave no reason"
    if problem.code != kind.code:
        text = f"{text} (status {status}{', ' + problem.code if problem.code else ''})"
    error = kind(text)
    if problem.request_id:
        error.add_note(f"request id: {problem.request_id}")
    return error


def _by_class(status: int) -> type[PenstockError]:
    return errors.InvalidRequest if 400 <= status < 500 else ServerFailed
