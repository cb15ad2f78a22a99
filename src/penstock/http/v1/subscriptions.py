"""Subscriptions of a queue: list, create, show, alter, delete, seek, pause, rotate secrets."""

from __future__ import annotations

from http import HTTPStatus
from typing import TypeVar

import msgspec
from blacksheep import Response
from msgspec import UNSET, UnsetType

from penstock.broker import Broker
from penstock.core.config import SubscriptionConfig
from penstock.core.stats import DefinedSubscription as Defined
from penstock.core.stats import SubscriptionStats
from penstock.errors import (
    InvalidDependency,
    InvalidFilter,
    InvalidName,
    ReservedQueue,
    SubscriptionExists,
)
from penstock.http.auth.user import Role
from penstock.http.exchange import IncomingRequest
from penstock.http.gate import Route, answer
from penstock.http.openapi.operation import Operation, Parameter, form, gives
from penstock.http.v1.definition_forms import (
    EnsuredSubscriptionJson,
    NewSubscriptionJson,
    SubscriptionChangesJson,
    settings_of,
)
from penstock.http.v1.fields import MAX_PAGE, Start
from penstock.http.v1.parameters import (
    AFTER,
    NO_CONTENT,
    QUEUE_ERRORS,
    QUEUE_PATH,
    SUBSCRIPTION_ERRORS,
    SUBSCRIPTION_PATH,
)
from penstock.http.v1.requests import path_names, path_value, query_number, read_form, start_of

__all__ = ["Subscriptions"]

_TAG = "subscriptions"


class SubscriptionList(msgspec.Struct, kw_only=True):
    """`next` is what to pass as `after` for the rest; null at the end."""

    subscriptions: list[SubscriptionStats]
    next: str | None


class DefinedSubscription(SubscriptionStats, frozen=True, kw_only=True):
    """`secret` signs its callbacks. It is shown when it is new, and never again."""

    secret: str | UnsetType = UNSET


class EnsuredSubscription(DefinedSubscription, frozen=True, kw_only=True):
    """`is_new`: it was made by this very request."""

    is_new: bool


class SecretJson(msgspec.Struct, kw_only=True):
    """Until the next rotation the former secret signs as well."""

    secret: str


class SeekJson(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`start`: earliest, latest, an index or a time with a zone."""

    start: Start


_new_subscription = msgspec.json.Decoder(NewSubscriptionJson)
_ensured_subscription = msgspec.json.Decoder(EnsuredSubscriptionJson)
_changes = msgspec.json.Decoder(SubscriptionChangesJson)
_seek = msgspec.json.Decoder(SeekJson)


class Subscriptions:
    """One handler per call."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def routes(self) -> list[Route]:
        every = "/v1/queues/{queue}/subscriptions"
        one = f"{every}/{{subscription}}"
        admin = Role.ADMIN
        return [
            Route("GET", every, self.list, operation=_LIST),
            Route("POST", every, self.create, admin, operation=_CREATE),
            Route("GET", one, self.show, operation=_SHOW),
            Route("PUT", one, self.ensure, admin, operation=_ENSURE),
            Route("PATCH", one, self.alter, admin, operation=_ALTER),
            Route("DELETE", one, self.delete, admin, operation=_DELETE),
            Route("POST", f"{one}/seek", self.seek, admin, operation=_SEEK),
            Route("POST", f"{one}/pause", self.pause, admin, operation=_PAUSE),
            Route("POST", f"{one}/resume", self.resume, admin, operation=_RESUME),
            Route("POST", f"{one}/secret/rotate", self.rotate, admin, operation=_ROTATE),
        ]

    async def list(self, request: IncomingRequest) -> Response:
        limit = query_number(request, "limit", MAX_PAGE, low=1, high=MAX_PAGE)
        after = request.parameter("after") or ""
        every = await self._broker.subscriptions(path_value(request, "queue"))
        found = [one for one in every if one.name > after]
        page = found[:limit]
        rest = page[-1].name if len(found) > limit else None
        return answer(HTTPStatus.OK, SubscriptionList(subscriptions=page, next=rest))

    async def create(self, request: IncomingRequest) -> Response:
        queue = path_value(request, "queue")
        new = await read_form(request, _new_subscription)
        config = SubscriptionConfig(**settings_of(new, SubscriptionConfig))
        made = await self._broker.create_subscription(
            queue, new.name, config, start=start_of(new.start)
        )
        return answer(HTTPStatus.CREATED, _shown(made, DefinedSubscription))

    async def ensure(self, request: IncomingRequest) -> Response:
        """The first caller creates it; others find it as they would have created it."""
        queue, name = path_names(request)
        new = await read_form(request, _ensured_subscription)
        config = SubscriptionConfig(**settings_of(new, SubscriptionConfig))
        start = start_of(new.start)
        ensured = await self._broker.ensure_subscription(queue, name, config, start=start)
        status = HTTPStatus.CREATED if ensured.is_new else HTTPStatus.OK
        return answer(status, _shown(ensured, EnsuredSubscription))

    async def show(self, request: IncomingRequest) -> Response:
        stats = await self._broker.subscription_stats(*path_names(request))
        return answer(HTTPStatus.OK, stats)

    async def alter(self, request: IncomingRequest) -> Response:
        queue, name = path_names(request)
        changes = settings_of(await read_form(request, _changes), SubscriptionConfig)
        altered = await self._broker.alter_subscription(queue, name, **changes)
        return answer(HTTPStatus.OK, _shown(altered, DefinedSubscription))

    async def delete(self, request: IncomingRequest) -> Response:
        await self._broker.delete_subscription(*path_names(request))
        return Response(HTTPStatus.NO_CONTENT)

    async def seek(self, request: IncomingRequest) -> Response:
        queue, name = path_names(request)
        start = start_of((await read_form(request, _seek)).start)
        await self._broker.seek(queue, start, name)
        return Response(HTTPStatus.NO_CONTENT)

    async def pause(self, request: IncomingRequest) -> Response:
        await self._broker.pause(*path_names(request))
        return Response(HTTPStatus.NO_CONTENT)

    async def resume(self, request: IncomingRequest) -> Response:
        await self._broker.resume(*path_names(request))
        return Response(HTTPStatus.NO_CONTENT)

    async def rotate(self, request: IncomingRequest) -> Response:
        secret = await self._broker.rotate_secret(*path_names(request))
        return answer(HTTPStatus.OK, SecretJson(secret=secret))


_Json = TypeVar("_Json", bound=DefinedSubscription)


def _shown(subscription: Defined, form: type[_Json]) -> _Json:
    fields = msgspec.structs.asdict(subscription)
    if subscription.secret is None:
        del fields["secret"]
    return form(**fields)


_LIST = Operation(
    "List the subscriptions of a queue",
    _TAG,
    gives(SubscriptionList, "One page, by name."),
    parameters=(
        *QUEUE_PATH,
        AFTER,
        Parameter(
            "limit",
            "query",
            f"How many at most: 1 to {MAX_PAGE}, which is the default.",
            {"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": MAX_PAGE},
        ),
    ),
    errors=QUEUE_ERRORS,
)
_CREATE = Operation(
    "Create a subscription",
    _TAG,
    gives(DefinedSubscription, "The subscription as it is now.", 201),
    parameters=QUEUE_PATH,
    body=form(NewSubscriptionJson),
    errors=(
        *QUEUE_ERRORS,
        InvalidName,
        InvalidFilter,
        InvalidDependency,
        SubscriptionExists,
        ReservedQueue,
    ),
)
_ENSURE = Operation(
    "Create a subscription if it is not there",
    _TAG,
    (
        *gives(EnsuredSubscription, "It was there, with the same settings."),
        *gives(EnsuredSubscription, "It was made.", 201),
    ),
    parameters=SUBSCRIPTION_PATH,
    body=form(EnsuredSubscriptionJson, required=False),
    errors=(
        *QUEUE_ERRORS,
        InvalidName,
        InvalidFilter,
        InvalidDependency,
        SubscriptionExists,
        ReservedQueue,
    ),
    about="One that is there keeps its position, whatever `start` says.",
)
_SHOW = Operation(
    "Look at a subscription",
    _TAG,
    gives(SubscriptionStats, "The subscription."),
    parameters=SUBSCRIPTION_PATH,
    errors=SUBSCRIPTION_ERRORS,
)
_ALTER = Operation(
    "Alter settings of a subscription",
    _TAG,
    gives(DefinedSubscription, "The subscription as it is now."),
    parameters=SUBSCRIPTION_PATH,
    body=form(SubscriptionChangesJson),
    errors=(*SUBSCRIPTION_ERRORS, InvalidDependency, ReservedQueue),
    about="What is absent stays as it is. A `filter` cannot be altered.",
)
_DELETE = Operation(
    "Delete a subscription; what waited for it alone is released",
    _TAG,
    (NO_CONTENT,),
    parameters=SUBSCRIPTION_PATH,
    errors=(*SUBSCRIPTION_ERRORS, ReservedQueue),
)
_SEEK = Operation(
    "Move a subscription back or forward",
    _TAG,
    (NO_CONTENT,),
    parameters=SUBSCRIPTION_PATH,
    body=form(SeekJson),
    errors=(*SUBSCRIPTION_ERRORS, ReservedQueue),
    about="Deliveries in flight become void.",
)
_PAUSE = Operation(
    "Deliver nothing until it is resumed; leases go on",
    _TAG,
    (NO_CONTENT,),
    parameters=SUBSCRIPTION_PATH,
    errors=SUBSCRIPTION_ERRORS,
)
_RESUME = Operation(
    "Deliver again", _TAG, (NO_CONTENT,), parameters=SUBSCRIPTION_PATH, errors=SUBSCRIPTION_ERRORS
)
_ROTATE = Operation(
    "Make a new secret for the callbacks of a subscription",
    _TAG,
    gives(SecretJson, "The new secret. It is not shown again."),
    parameters=SUBSCRIPTION_PATH,
    errors=SUBSCRIPTION_ERRORS,
    about="Each call is signed with this secret and the former one, until the next rotation.",
)
