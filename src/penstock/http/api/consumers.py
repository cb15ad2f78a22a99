"""``/api/consumers``: who is called back for which topics, and after whom."""

from __future__ import annotations

from typing import Annotated

import msgspec
from blacksheep import Response

from penstock.errors import (
    Conflict,
    DiskFull,
    InvalidArgument,
    InvalidDependency,
    InvalidFilter,
    StorageFailed,
    SubscriptionNotFound,
    UserNotFound,
)
from penstock.http.api.forms import Done, Form, done, read_form
from penstock.http.api.topics import Topics
from penstock.http.auth.user import Role
from penstock.http.auth.users import Users
from penstock.http.exchange import IncomingRequest
from penstock.http.gate import Route
from penstock.http.openapi.operation import Operation, form, gives

__all__ = ["Consumers"]

_TAG = "consumers"

Topic = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Who = Annotated[str, msgspec.Meta(min_length=1, max_length=254)]


class NewSubscription(Form, frozen=True, kw_only=True):
    """`topic`, a `filter` in CEL over the content, or both."""

    topic: Topic | None = None
    callback_url: Annotated[str, msgspec.Meta(min_length=1, max_length=2000)]
    filter: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)] | None = None


class EndedSubscription(Form, frozen=True, kw_only=True):
    """The topic and the filter that were subscribed to."""

    topic: Topic | None = None
    filter: str | None = None


class NewDependency(Form, frozen=True, kw_only=True):
    """Users by id, e-mail or name. `user` gets a message after those in `dependent_on` took it."""

    user: Who
    dependent_on: Annotated[tuple[Who, ...], msgspec.Meta(min_length=1, max_length=100)]


class Subscribed(Done, frozen=True, kw_only=True):
    """`secret` signs the calls. It is shown the first time, and never again."""

    subscription: str
    secret: str | msgspec.UnsetType = msgspec.UNSET


class Consumers:
    """One handler per path. The caller is the consumer."""

    def __init__(self, topics: Topics, users: Users) -> None:
        self._topics = topics
        self._users = users

    def routes(self) -> list[Route]:
        path = "/api/consumers"
        admin = Role.ADMIN
        return [
            Route("POST", f"{path}/subscribe", self.subscribe, operation=_SUBSCRIBE),
            Route("POST", f"{path}/unsubscribe", self.unsubscribe, operation=_UNSUBSCRIBE),
            Route("POST", f"{path}/addDependency", self.add, admin, operation=_ADD_DEPENDENCY),
        ]

    async def subscribe(self, request: IncomingRequest) -> Response:
        new = await read_form(request, NewSubscription)
        await self._users.refresh()
        name, secret = await self._topics.subscribe(
            request.caller, new.topic, new.filter, new.callback_url
        )
        more = {} if secret is None else {"secret": secret}
        return done("subscribed.", subscription=name, **more)

    async def unsubscribe(self, request: IncomingRequest) -> Response:
        ended = await read_form(request, EndedSubscription)
        await self._users.refresh()
        await self._topics.unsubscribe(request.caller, ended.topic, ended.filter)
        return done("unsubscribed.")

    async def add(self, request: IncomingRequest) -> Response:
        new = await read_form(request, NewDependency)
        await self._users.refresh()
        user = self._users.find(new.user)
        await self._topics.add_dependency(user, [self._users.find(one) for one in new.dependent_on])
        return done("dependency added.")


_STORE = (InvalidArgument, Conflict, DiskFull, StorageFailed)
_SUBSCRIBE = Operation(
    "Be called back for a topic, or for what an expression is true of",
    _TAG,
    gives(Subscribed, "From now on."),
    body=form(NewSubscription),
    errors=(*_STORE, InvalidFilter),
    about="Again with the same topic and filter: the URL is changed, and a paused one goes on.",
)
_UNSUBSCRIBE = Operation(
    "Be called back no more; what was not delivered is given up",
    _TAG,
    gives(Done, "From now on."),
    body=form(EndedSubscription),
    errors=(*_STORE, SubscriptionNotFound),
)
_ADD_DEPENDENCY = Operation(
    "Have a consumer wait for others, message by message",
    _TAG,
    gives(Done, "From now on."),
    body=form(NewDependency),
    errors=(*_STORE, InvalidDependency, UserNotFound),
    about="Of the messages that both receive. It may be said before or after they subscribe.",
)
