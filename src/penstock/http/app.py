"""The web application: all routes, each behind the gate."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterable
from http import HTTPStatus

import structlog
from blacksheep import Application, Response, Router
from prometheus_client import CollectorRegistry

from penstock.broker import Broker
from penstock.clock import Clock, SystemClock
from penstock.errors import StorageError, StoreUnavailable
from penstock.http.api import Topics, api_routes
from penstock.http.auth.authenticator import Authenticator
from penstock.http.auth.passwords import Passwords
from penstock.http.auth.tokens import open_tokens
from penstock.http.auth.users import open_users
from penstock.http.errors import Problem, Refusal, Refused
from penstock.http.exchange import IncomingRequest
from penstock.http.gate import Gate, Handler, Route
from penstock.http.lightq import LightQ
from penstock.http.openapi.document import Documents
from penstock.http.ops import Ops
from penstock.http.request_log import RequestLog
from penstock.http.request_times import RequestTimes
from penstock.http.subscribers import Subscribers
from penstock.http.v1 import native_routes
from penstock.settings import Settings
from penstock.storage.local import LocalShared

__all__ = ["create_app"]

# How often what was away at the start is tried again.
_AGAIN_SECONDS = 1.0

logger = structlog.get_logger("penstock.http")


async def create_app(
    broker: Broker,
    settings: Settings,
    clock: Clock | None = None,
    log: RequestLog | None = None,
    registry: CollectorRegistry | None = None,
) -> Application:
    """The application. It neither opens nor closes the broker, nor flushes the log.

    What ``registry`` already holds is shown at ``/metrics``, too. Raises what `open_users` and
    `open_tokens` raise.
    """
    clock = clock or SystemClock()
    registry = registry or CollectorRegistry()
    times = RequestTimes()
    registry.register(times)
    passwords = Passwords()
    shared = broker.shared or LocalShared(settings.directory, clock)
    has_others = broker.shared is not None
    users = await open_users(settings, passwords, shared, has_others=has_others)
    tokens = await open_tokens(shared, lifetime_seconds=settings.token_minutes * 60, clock=clock)
    authenticator = Authenticator(
        users, passwords=passwords, tokens=tokens, monotonic=time.monotonic
    )
    topics = Topics(broker, users, settings)
    gate = Gate(
        authenticator=authenticator,
        shared=shared,
        limits={"push": settings.push_per_second, "pop": settings.pop_per_second},
        times=times,
        log=log or RequestLog(settings.log_format),
        clock=clock,
    )
    routes = [
        *LightQ(broker, settings).routes(),
        *native_routes(broker),
        *Subscribers(users, topics).routes(),
        *api_routes(topics, users, authenticator, tokens, settings),
        *Ops(broker, users, tokens, registry).routes(),
    ]
    routes += Documents(routes).routes()
    # Many that watch a server ask for the head alone.
    is_open = [route for route in routes if route.method == "GET" and route.role is None]
    routes += [route._replace(method="HEAD") for route in is_open]
    # The framework's default router is shared by all applications of a process.
    app = Application(router=Router())
    for route in routes:
        app.router.add(route.method, route.path, gate.guard(route))
    app.router.fallback = _fallback(gate, routes)

    opening: list[asyncio.Task[None]] = []

    @app.on_start
    async def open_topics(app: Application) -> None:
        try:
            await topics.open()
        except StoreUnavailable as exc:
            logger.warning("the topics are put right later", error=str(exc))
            opening.append(asyncio.get_running_loop().create_task(_open_later(topics)))
        except StorageError as exc:
            # A disk that is full now may have space later, and the queues work without topics.
            logger.error("the topics could not be put right: start again", error=str(exc))

    @app.on_stop
    async def stop_opening(app: Application) -> None:
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)

    return app


async def _open_later(topics: Topics) -> None:
    """When their queue, or the users, are there again."""
    while True:
        await asyncio.sleep(_AGAIN_SECONDS)
        try:
            await topics.open()
            return
        except StoreUnavailable:
            continue
        except Exception:
            logger.exception("the topics could not be put right: start again")
            return


def _fallback(gate: Gate, routes: Iterable[Route]) -> Handler:
    """The handler for what no route matches: 405 if another method would match, else 404."""
    methods: dict[str, list[str]] = {}
    for route in routes:
        methods.setdefault(route.path, []).append(route.method)
    known = [
        (re.compile(re.sub(r"\{\w+\}", "[^/]+", path) + "/?", re.IGNORECASE), ", ".join(allowed))
        for path, allowed in methods.items()
    ]

    async def refuse(request: IncomingRequest) -> Response:
        path = request.path
        for pattern, allowed in known:
            if pattern.fullmatch(path):
                raise Refused(
                    HTTPStatus.METHOD_NOT_ALLOWED,
                    f"there is no {request.method} for this path, but {allowed}",
                    {b"Allow": allowed.encode()},
                )
        raise Refused(HTTPStatus.NOT_FOUND, "there is nothing at this path")

    native = gate.guard(Route("*", "*", refuse, error_form=Problem))
    api = gate.guard(Route("*", "*", refuse, error_form=Refusal))
    other = gate.guard(Route("*", "*", refuse))

    async def fallback(request: IncomingRequest) -> Response:
        path = request.path
        if path.startswith("/v1/"):
            return await native(request)
        return await (api if path.startswith(("/api/", "/auth/")) else other)(request)

    return fallback
