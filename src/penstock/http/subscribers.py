"""``/admin/subscribers``: LightQ's name for users, besides the two that the settings name."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from blacksheep import Response

from penstock.errors import InvalidArgument, InvalidName, StorageFailed, UserExists, UserNotFound
from penstock.http.api.forms import Form, Password, read_form
from penstock.http.api.topics import Topics
from penstock.http.auth.user import Role, User
from penstock.http.auth.users import Users
from penstock.http.exchange import IncomingRequest
from penstock.http.gate import Route, answer
from penstock.http.openapi.operation import Answer, Operation, Parameter, form, gives
from penstock.http.openapi.schema import NAME, NUMBER, TEXT, array_of, object_of

__all__ = ["Subscribers"]

RoleName = Literal["USER", "ADMIN"]
RateLimit = Annotated[int, msgspec.Meta(ge=-1, le=1_000_000_000)]


class NewSubscriber(Form, frozen=True, kw_only=True, rename="camel"):
    """`rate_limit` is in requests a second; 0 or -1 is none."""

    username: str
    password: Password
    role: RoleName = "USER"
    rate_limit: RateLimit = 0


class Changes(Form, frozen=True, kw_only=True, rename="camel"):
    """What is left out stays as it is."""

    password: Password | msgspec.UnsetType = msgspec.UNSET
    role: RoleName | msgspec.UnsetType = msgspec.UNSET
    rate_limit: RateLimit | msgspec.UnsetType = msgspec.UNSET


T = TypeVar("T")


class Subscribers:
    """One handler per method and path."""

    def __init__(self, users: Users, topics: Topics) -> None:
        self._users = users
        self._topics = topics

    def routes(self) -> list[Route]:
        path = "/admin/subscribers"
        admin = Role.ADMIN
        return [
            Route("POST", path, self.add, admin, operation=_ADD),
            Route("GET", path, self.list, admin, operation=_LIST),
            Route("PATCH", f"{path}/{{username}}", self.alter, admin, operation=_ALTER),
            Route("DELETE", f"{path}/{{username}}", self.remove, admin, operation=_REMOVE),
        ]

    async def add(self, request: IncomingRequest) -> Response:
        new = await read_form(request, NewSubscriber)
        try:
            user = await self._users.add(
                new.username, new.password, Role[new.role], requests_per_second=new.rate_limit
            )
        except UserExists as exc:
            raise InvalidArgument(str(exc)) from exc  # as LightQ has it
        return answer(HTTPStatus.CREATED, _subscriber(user))

    async def list(self, request: IncomingRequest) -> Response:
        await self._users.refresh()
        return answer(HTTPStatus.OK, [_subscriber(user) for user in self._users.stored()])

    async def alter(self, request: IncomingRequest) -> Response:
        given = await read_form(request, Changes)
        user = await self._users.alter(
            _name(request),
            password=_or_none(given.password),
            role=None if given.role is msgspec.UNSET else Role[given.role],
            requests_per_second=_or_none(given.rate_limit),
        )
        return answer(HTTPStatus.OK, _subscriber(user))

    async def remove(self, request: IncomingRequest) -> Response:
        await self._topics.forget(await self._users.remove(_name(request)))
        return Response(HTTPStatus.NO_CONTENT)


def _name(request: IncomingRequest) -> str:
    return (request.route_values or {}).get("username") or ""


def _or_none(value: T | msgspec.UnsetType) -> T | None:
    return None if isinstance(value, msgspec.UnsetType) else value


def _subscriber(user: User) -> dict[str, object]:
    return {
        "username": user.username,
        "role": user.role.name,
        "rateLimit": user.requests_per_second,
    }


_SUBSCRIBER = {
    "username": NAME,
    "role": {"enum": ["USER", "ADMIN"]},
    "rateLimit": NUMBER,
}
_NEW_SUBSCRIBER: dict[str, Any] = {
    "type": "object",
    "properties": {**_SUBSCRIBER, "password": {"type": "string", "minLength": 1}},
    "required": ["username", "password"],
    "additionalProperties": False,
}
_SUBSCRIBER_CHANGES = {
    "type": "object",
    "properties": {
        name: schema for name, schema in _NEW_SUBSCRIBER["properties"].items() if name != "username"
    },
    "additionalProperties": False,
}
_USERNAME = Parameter("username", "path", "The user's name.", TEXT, required=True)
_ERRORS = (InvalidArgument, InvalidName, StorageFailed)
_TAG = "subscribers"

_ADD = Operation(
    "Add a user",
    _TAG,
    gives(object_of(_SUBSCRIBER), "The user.", 201),
    body=form(_NEW_SUBSCRIBER),
    errors=_ERRORS,
)
_LIST = Operation("List the users that were added", _TAG, gives(array_of(_SUBSCRIBER), "All."))
_ALTER = Operation(
    "Change a user's password, role or limit",
    _TAG,
    gives(object_of(_SUBSCRIBER), "The user."),
    parameters=(_USERNAME,),
    body=form(_SUBSCRIBER_CHANGES),
    errors=(*_ERRORS, UserNotFound),
    about="What is left out stays. Another password voids the tokens given for the old one.",
)
_REMOVE = Operation(
    "Remove a user, who can no longer log in",
    _TAG,
    (Answer(204, "Done."),),
    parameters=(_USERNAME,),
    errors=(*_ERRORS, UserNotFound),
)
