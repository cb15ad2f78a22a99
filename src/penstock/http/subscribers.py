"""``/admin/subscribers``: who may use the queues, beside the two users of the settings."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Literal, TypeVar

import msgspec
from blacksheep import Response

from penstock.errors import InvalidArgument, UserExists
from penstock.http.api.forms import Form, Password, read_form
from penstock.http.api.topics import Topics
from penstock.http.exchange import IncomingRequest
from penstock.http.gate import Route, answer
from penstock.http.user import Role, User
from penstock.http.users import Users

__all__ = ["Subscribers"]

RoleName = Literal["USER", "ADMIN"]
RateLimit = Annotated[int, msgspec.Meta(ge=-1, le=1_000_000_000)]


class NewSubscriber(Form, frozen=True, kw_only=True, rename="camel"):
    """`rate_limit` is in requests a second; 0 or less is none."""

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
    """Handlers, one a method and path."""

    def __init__(self, users: Users, topics: Topics) -> None:
        self._users = users
        self._topics = topics

    def routes(self) -> list[Route]:
        path = "/admin/subscribers"
        return [
            Route("POST", path, self.add, Role.ADMIN),
            Route("GET", path, self.list, Role.ADMIN),
            Route("PATCH", f"{path}/{{username}}", self.alter, Role.ADMIN),
            Route("DELETE", f"{path}/{{username}}", self.remove, Role.ADMIN),
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
