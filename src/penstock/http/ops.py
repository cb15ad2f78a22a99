"""What operators look at and turn: health, figures for Prometheus, the log's level."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus

import msgspec
from blacksheep import Content, Response
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from penstock.broker import Broker
from penstock.core.stats import QueueStats
from penstock.errors import InvalidArgument, NotFound
from penstock.http.auth import Role
from penstock.http.body import read_body
from penstock.http.exchange import IncomingRequest
from penstock.http.gate import Route, answer
from penstock.logs import LEVELS, Level, level, set_level

__all__ = ["Ops"]

_LEVEL_NAMES: dict[str, Level] = {name.upper(): name for name in LEVELS} | {"WARN": "warning"}
_OPENNESS = {"closed": 0.0, "half_open": 0.5, "open": 1.0}
_TEXT = b"text/plain; version=0.0.4; charset=utf-8"


class _LevelChange(msgspec.Struct, frozen=True, rename="camel"):
    configured_level: str


class Ops:
    """Handlers, one a path."""

    def __init__(self, broker: Broker, registry: CollectorRegistry) -> None:
        self._broker = broker
        self._registry = registry

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/livez", self.alive, role=None),
            Route("GET", "/readyz", self.ready, role=None),
            Route("GET", "/actuator/health", self.health, role=None),
            Route("GET", "/metrics", self.metrics, Role.USER),
            Route("GET", "/actuator/loggers", self.loggers, Role.ADMIN),
            Route("POST", "/actuator/loggers/{name}", self.set_level, Role.ADMIN),
        ]

    async def alive(self, request: IncomingRequest) -> Response:
        """Touches nothing: the process answers."""
        return answer(HTTPStatus.OK, {"status": "UP"})

    async def ready(self, request: IncomingRequest) -> Response:
        return await self.health(request)

    async def health(self, request: IncomingRequest) -> Response:
        problem = self._broker.problem
        store: dict[str, object] = {"status": "UP", "durability": self._broker.durability}
        if problem is not None:
            store = _down(problem)
        components = {"store": store}
        for name, why in self._broker.services.items():
            components[name] = {"status": "UP"} if why is None else _down(why)
        status = HTTPStatus.OK if problem is None else HTTPStatus.SERVICE_UNAVAILABLE
        return answer(status, {"status": store["status"], "components": components})

    async def metrics(self, request: IncomingRequest) -> Response:
        queues = await self._broker.stats()
        text = generate_latest(self._registry)
        figures = CollectorRegistry()
        figures.register(_Figures(queues))
        return Response(HTTPStatus.OK, content=Content(_TEXT, text + generate_latest(figures)))

    async def loggers(self, request: IncomingRequest) -> Response:
        root = {"configuredLevel": level().upper(), "effectiveLevel": level().upper()}
        names = [name.upper() for name in reversed(LEVELS)]
        return answer(HTTPStatus.OK, {"levels": names, "loggers": {"ROOT": root}})

    async def set_level(self, request: IncomingRequest) -> Response:
        """There is one logger, called ROOT; Spring's path and body are understood."""
        if ((request.route_values or {}).get("name") or "").upper() != "ROOT":
            raise NotFound("there is one logger, ROOT")
        try:
            change = msgspec.json.decode(await read_body(request, 1000), type=_LevelChange)
            set_level(_LEVEL_NAMES[change.configured_level.upper()])
        except (msgspec.DecodeError, UnicodeError, KeyError):
            raise InvalidArgument(
                f'send {{"configuredLevel": ...}} with one of {", ".join(_LEVEL_NAMES)}'
            ) from None
        return Response(HTTPStatus.NO_CONTENT)


def _down(problem: str) -> dict[str, object]:
    return {"status": "DOWN", "problem": problem}


class _Figures:
    """What the queues say of themselves, at one moment. One series a subscription."""

    def __init__(self, queues: list[QueueStats]) -> None:
        self._queues = queues

    def collect(self) -> Iterator[Metric]:
        messages = GaugeMetricFamily(
            "penstock_queue_messages", "Messages that a queue holds", labels=["queue"]
        )
        size = GaugeMetricFamily(
            "penstock_queue_bytes", "Bytes of the messages that a queue holds", labels=["queue"]
        )
        letters = GaugeMetricFamily(
            "penstock_queue_dead_letters", "Dead letters that nobody has taken", labels=["queue"]
        )
        labels = ["queue", "subscription"]
        unsettled = GaugeMetricFamily(
            "penstock_subscription_messages",
            "Unsettled messages of a subscription, by where they are",
            labels=[*labels, "state"],
        )
        age = GaugeMetricFamily(
            "penstock_subscription_oldest_seconds",
            "Age of the oldest unsettled message",
            labels=labels,
        )
        went = CounterMetricFamily(
            "penstock_subscription_events",
            "What happened to messages of a subscription",
            labels=[*labels, "event"],
        )
        calls = CounterMetricFamily(
            "penstock_callback_calls",
            "Callbacks since the server started, by whether they were answered well",
            labels=[*labels, "result"],
        )
        circuit = GaugeMetricFamily(
            "penstock_callback_circuit_open",
            "1 while callbacks are held back after repeated failures, 0.5 while one is tried",
            labels=labels,
        )
        for queue in self._queues:
            messages.add_metric([queue.name], queue.messages)
            size.add_metric([queue.name], queue.bytes)
            letters.add_metric([queue.name], queue.dead_letters)
            for one in queue.subscriptions:
                names = [queue.name, one.name]
                for state in ("ready", "in_flight", "delayed", "parked", "held"):
                    unsettled.add_metric([*names, state], getattr(one, state))
                age.add_metric(names, one.oldest_unacked_seconds or 0)
                for event in ("delivered", "redelivered", "acked", "nacked", "leases_expired"):
                    went.add_metric([*names, event], getattr(one, event))
                for event in ("expired", "dead_lettered", "replayed", "discarded", "purged"):
                    went.add_metric([*names, event], getattr(one, event))
                callback = one.callback
                if callback is not None:
                    calls.add_metric([*names, "success"], callback.calls - callback.failures)
                    calls.add_metric([*names, "failure"], callback.failures)
                    circuit.add_metric(names, _OPENNESS[callback.circuit])
        yield from (messages, size, letters, unsettled, age, went, calls, circuit)
