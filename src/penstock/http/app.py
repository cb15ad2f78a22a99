"""The web application: all routes, each behind the gate."""

from __future__ import annotations

import time
from http import HTTPStatus

from blacksheep import Application, Request, Response
from prometheus_client import CollectorRegistry, Histogram

from penstock.broker import Broker
from penstock.clock import Clock, SystemClock
from penstock.http.auth import Authenticator, Role, User, hash_password
from penstock.http.errors import Refused
from penstock.http.gate import Gate, RateLimit, Route
from penstock.http.lightq import LightQ
from penstock.http.ops import Ops
from penstock.settings import Settings

__all__ = ["create_app"]


def create_app(broker: Broker, settings: Settings, clock: Clock | None = None) -> Application:
    """An ASGI application. It neither opens nor closes the broker."""
    clock = clock or SystemClock()
    registry = CollectorRegistry()
    gate = Gate(
        authenticator=Authenticator(_users(settings), monotonic=time.monotonic),
        limits={
            "push": RateLimit(settings.push_per_second, clock),
            "pop": RateLimit(settings.pop_per_second, clock),
        },
        seconds=Histogram(
            "penstock_request_seconds",
            "Time to answer a request",
            ["method", "path", "status"],
            registry=registry,
        ),
        clock=clock,
    )
    app = Application()
    for route in [*LightQ(broker, settings).routes(), *Ops(broker, registry).routes()]:
        app.router.add(route.method, route.path, gate.guard(route))
    app.router.fallback = gate.guard(Route("*", "*", _not_found, role=None))
    return app


def _users(settings: Settings) -> dict[str, User]:
    return {
        settings.user_username: User(hash_password(settings.user_password), Role.USER),
        settings.admin_username: User(hash_password(settings.admin_password), Role.ADMIN),
    }


async def _not_found(request: Request) -> Response:
    raise Refused(HTTPStatus.NOT_FOUND, f"there is no {request.method} for this path")
