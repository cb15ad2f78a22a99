"""The gate that every request passes: its id, who sends it, rate limits, and errors as answers."""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import NamedTuple

import msgspec
import structlog
from blacksheep import Content, Response

from penstock.clock import Clock
from penstock.errors import PenstockError
from penstock.http.auth.authenticator import Authenticator
from penstock.http.auth.user import Role
from penstock.http.errors import ErrorForm, LightQError, Occasion, Refused, refusal_of, unauthorized
from penstock.http.exchange import IncomingRequest
from penstock.http.openapi.operation import Operation
from penstock.http.request_log import RequestLog
from penstock.http.request_times import RequestTimes, Times
from penstock.storage.shared import Limit, Shared

__all__ = ["Gate", "Handler", "Route", "answer"]

Handler = Callable[[IncomingRequest], Awaitable[Response]]

_JSON = b"application/json"
_MAX_ID_CHARACTERS = 128
_MAX_PATH_CHARACTERS = 300

logger = structlog.get_logger("penstock.http")


class Route(NamedTuple):
    """A method and a path, the handler for it, and what the gate is to do before and after.

    - `role`: what the caller needs; None is open to everybody.
    - `limit`: the name of the rate limit that applies, if any.
    - `operation`: what the route says about itself; None keeps it out of the document.
    - `error_form`: what its errors look like.
    """

    method: str
    path: str
    handler: Handler
    role: Role | None = Role.USER
    limit: str | None = None
    operation: Operation | None = None
    error_form: ErrorForm = LightQError


_encode = msgspec.json.Encoder().encode


def answer(status: HTTPStatus, value: object, content_type: bytes = _JSON) -> Response:
    return Response(status, content=Content(content_type, _encode(value)))


class Gate:
    """Wraps handlers. Errors become answers here and nowhere else.

    ``limits`` are in requests a second, by the names that routes use; 0 or less is no limit.
    """

    def __init__(
        self,
        *,
        authenticator: Authenticator,
        shared: Shared,
        limits: dict[str, int],
        times: RequestTimes,
        log: RequestLog,
        clock: Clock,
    ) -> None:
        self._authenticator = authenticator
        self._clock = clock
        self._shared = shared
        self._limits = {
            name: Limit(name, per_second) for name, per_second in limits.items() if per_second > 0
        }
        self._times = times
        self._log = log
        # A random prefix and a counter are enough to tell requests apart.
        self._id_prefix = secrets.token_hex(10)
        self._id_numbers = itertools.count()

    def guard(self, route: Route) -> Handler:
        times: dict[int, Times] = {}  # by status
        # The log has the real path. Figures have that of the route, so that there are only so many.
        is_pattern = "{" in route.path or route.path == "*"

        async def guarded(request: IncomingRequest) -> Response:
            began = time.perf_counter()
            request_id = _given_id(request) or self._next_id()
            try:
                await self._admit(request, route)
                response = await route.handler(request)
            except PenstockError as exc:
                response = self._refuse(refusal_of(exc), route, request, request_id)
            except Refused as exc:
                response = self._refuse(exc, route, request, request_id)
            except Exception:
                logger.exception("a request failed", request_id=request_id, path=route.path)
                response = self._refuse(_unexpected(), route, request, request_id)
            response.add_header(b"X-Request-Id", request_id.encode())
            if b"x-correlation-id" in request.first:
                correlation_id = _id_in(request, b"x-correlation-id") or request_id
                response.add_header(b"X-Correlation-Id", correlation_id.encode())
            seconds = time.perf_counter() - began
            number = response.status
            if number not in times:
                times[number] = self._times.of(route.method, route.path, number)
            times[number].add(seconds)
            group = request.first.get(b"consumergroup")
            path = request.path[:_MAX_PATH_CHARACTERS] if is_pattern else route.path
            self._log.add(request_id, request.method, path, group, number, seconds)
            return response

        # The type itself, not its name: otherwise the framework wraps the handler, twice, to
        # inspect what it returns.
        guarded.__annotations__["return"] = Response
        return guarded

    async def _admit(self, request: IncomingRequest, route: Route) -> None:
        if request.refused is not None:
            raise request.refused
        limits = []
        if route.role is not None:
            header = request.first.get(b"authorization")
            user = self._authenticator.recall(header) if header else None
            if user is None and header:
                user = await self._authenticator.identify(header)
            if user is None:
                raise unauthorized("name and password, or the token, are missing or wrong")
            if user.role < route.role:
                raise Refused(
                    HTTPStatus.FORBIDDEN,
                    f"this needs the role {route.role.name}: ask as a user who has it",
                )
            if user.requests_per_second > 0:
                limits.append(Limit(f"user:{user.id}", user.requests_per_second))
            request.caller = user
        if route.limit in self._limits:
            limits.append(self._limits[route.limit])
        if limits and (over := await self._shared.over_limit(limits)) is not None:
            kind = f" {over.name}" if over.name in self._limits else ""
            raise Refused(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"more than the allowed {over.per_second}{kind} requests a second",
                {b"Retry-After": b"1"},
            )

    def _next_id(self) -> str:
        return f"{self._id_prefix}{next(self._id_numbers):012x}"

    def _refuse(
        self, refused: Refused, route: Route, request: IncomingRequest, request_id: str
    ) -> Response:
        path = request.url.path.decode("utf-8", "replace")
        form = route.error_form
        body = form.make(refused, Occasion(path, request_id, self._clock.now_ns()))
        response = answer(refused.status, body, form.content_type.encode())
        for name, value in refused.headers.items():
            response.add_header(name, value)
        return response


def _unexpected() -> Refused:
    return Refused(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "an unexpected error; the server's log has it under this request id",
        code="internal_error",
    )


def _given_id(request: IncomingRequest) -> str | None:
    return _id_in(request, b"x-request-id") or _id_in(request, b"x-correlation-id")


def _id_in(request: IncomingRequest, header: bytes) -> str | None:
    given = request.first.get(header)
    if given and len(given) <= _MAX_ID_CHARACTERS:
        text = given.decode("latin-1")
        if text.isascii() and text.isprintable():
            return text
    return None
