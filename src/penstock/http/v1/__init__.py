"""``/v1/*``: the native API. It has everything that the model can do, in batches."""

from __future__ import annotations

from penstock.broker import Broker
from penstock.http.errors import Problem
from penstock.http.gate import Route
from penstock.http.v1.dead_letters import DeadLetters
from penstock.http.v1.delivery import DeliveryCalls
from penstock.http.v1.dependencies import Dependencies
from penstock.http.v1.events import Events
from penstock.http.v1.filters import Filters
from penstock.http.v1.publishing import Publishing
from penstock.http.v1.queues import Queues
from penstock.http.v1.reading import Reading
from penstock.http.v1.streams import Streams
from penstock.http.v1.subscriptions import Subscriptions
from penstock.http.v1.views import Views

__all__ = ["native_routes"]


def native_routes(broker: Broker) -> list[Route]:
    """The busiest come first, because that is the order in which a path is looked up."""
    streams = Streams()
    routes = [
        *Publishing(broker, streams).routes(),
        *Reading(broker, streams).routes(),
        *Events(broker, streams).routes(),
        *DeliveryCalls(broker).routes(),
        *Queues(broker).routes(),
        *Subscriptions(broker).routes(),
        *Filters(broker).routes(),
        *Dependencies(broker).routes(),
        *DeadLetters(broker).routes(),
        *Views(broker).routes(),
    ]
    return [route._replace(error_form=Problem) for route in routes]
