"""For operators: health, figures for Prometheus, and the level of the log."""

from __future__ import annotations

from http import HTTPStatus

import msgspec
from blacksheep import Content, Response
from prometheus_client import CollectorRegistry, generate_latest

from penstock.broker import Broker
from penstock.errors import InvalidArgument, NotFound
from penstock.http.auth.tokens import Tokens
from penstock.http.auth.user import Role
from penstock.http.auth.users import Users
from penstock.http.body import read_body
from penstock.http.exchange import IncomingRequest
from penstock.http.gaps import Gaps
from penstock.http.gate import Route, answer
from penstock.http.openapi.operation import Answer, Operation, Parameter, form, gives
from penstock.http.openapi.schema import TEXT, object_of
from penstock.http.queue_figures import queue_figures
from penstock.logs import LEVELS, Level, level, set_level

__all__ = ["Ops"]

# As Spring calls them.
_NAMES: dict[Level, str] = {name: name.upper() for name in LEVELS} | {"warning": "WARN"}
_LEVELS: dict[str, Level] = {name: level for level, name in _NAMES.items()} | {"WARNING": "warning"}
_TEXT = b"text/plain; version=0.0.4; charset=utf-8"


class _LevelChange(msgspec.Struct, frozen=True, rename="camel"):
    configured_level: str


class Ops:
    """One handler per path."""

    def __init__(
        self, broker: Broker, users: Users, tokens: Tokens, registry: CollectorRegistry
    ) -> None:
        self._broker = broker
        self._users = users
        self._tokens = tokens
        self._registry = registry

    def routes(self) -> list[Route]:
        admin = Role.ADMIN
        return [
            Route("GET", "/livez", self.alive, role=None, operation=_ALIVE),
            Route("GET", "/readyz", self.ready, role=None, operation=_READY),
            Route("GET", "/actuator/health", self.health, role=None, operation=_HEALTH),
            Route("GET", "/metrics", self.metrics, operation=_METRICS),
            Route("GET", "/actuator/loggers", self.loggers, admin, operation=_LOGGERS),
            Route("POST", "/actuator/loggers/{name}", self.set_level, admin, operation=_SET_LEVEL),
        ]

    async def alive(self, request: IncomingRequest) -> Response:
        """Touches nothing: the process answers."""
        return answer(HTTPStatus.OK, {"status": "UP"})

    async def ready(self, request: IncomingRequest) -> Response:
        return await self.health(request)

    async def health(self, request: IncomingRequest) -> Response:
        """UP as long as some queues can be used: the components say which part is not there."""
        problem = self._broker.problem
        store: dict[str, object] = {"status": "UP", "durability": self._broker.durability}
        if problem is not None:
            store = _down(problem)
        components = {"store": store}
        for name, why in self._broker.services.items():
            components[name] = {"status": "UP"} if why is None else _down(why)
        for name, part in (("users", self._users), ("tokens", self._tokens)):
            if part.problem is not None:
                components[name] = _down(part.problem)
        is_up = problem is None and (self._users.problem is None or bool(self._users.all()))
        status = HTTPStatus.OK if is_up else HTTPStatus.SERVICE_UNAVAILABLE
        return answer(status, {"status": "UP" if is_up else "DOWN", "components": components})

    async def metrics(self, request: IncomingRequest) -> Response:
        """With what is known: what is away is named, and its series are left out."""
        known = await self._broker.known_stats()
        text = generate_latest(self._registry)
        gaps = CollectorRegistry()
        gaps.register(Gaps(known, {"store": self._broker.problem, **self._broker.services}))
        parts = [text, *await queue_figures(known.queues), generate_latest(gaps)]
        return Response(HTTPStatus.OK, content=Content(_TEXT, b"".join(parts)))

    async def loggers(self, request: IncomingRequest) -> Response:
        root = {"configuredLevel": _NAMES[level()], "effectiveLevel": _NAMES[level()]}
        names = [_NAMES[each] for each in reversed(LEVELS)]
        return answer(HTTPStatus.OK, {"levels": names, "loggers": {"ROOT": root}})

    async def set_level(self, request: IncomingRequest) -> Response:
        """There is one logger, called ROOT; Spring's path and body are understood."""
        if ((request.route_values or {}).get("name") or "").upper() != "ROOT":
            raise NotFound("there is one logger, ROOT")
        try:
            change = msgspec.json.decode(await read_body(request, 1000), type=_LevelChange)
            set_level(_LEVELS[change.configured_level.upper()])
        except (msgspec.DecodeError, UnicodeError, KeyError):
            raise InvalidArgument(
                f'send {{"configuredLevel": ...}} with one of {", ".join(_LEVELS)}'
            ) from None
        return Response(HTTPStatus.NO_CONTENT)


def _down(problem: str) -> dict[str, object]:
    return {"status": "DOWN", "problem": problem}


_TAG = "operations"
_STATUS = {"type": "object", "properties": {"status": {"enum": ["UP", "DOWN"]}}}

_ALIVE = Operation("Whether the process answers", _TAG, gives(_STATUS, "It does."))
_READY = Operation(
    "Whether it can take requests",
    _TAG,
    (*gives(_STATUS, "It can."), *gives(_STATUS, "It cannot.", 503)),
)
_HEALTH = Operation(
    "Health, by component",
    _TAG,
    (*gives(_STATUS, "Up."), *gives(_STATUS, "Down.", 503)),
)
_METRICS = Operation(
    "Figures for Prometheus", _TAG, (Answer(200, "All of them.", {"text/plain": TEXT}),)
)
_LOGGERS = Operation("What is logged", _TAG, gives({"type": "object"}, "Levels and loggers."))
_SET_LEVEL = Operation(
    "Change what is logged",
    _TAG,
    (Answer(204, "Done."),),
    parameters=(Parameter("name", "path", "`ROOT`.", TEXT, required=True),),
    body=form(object_of({"configuredLevel": TEXT})),
    errors=(InvalidArgument, NotFound),
)
