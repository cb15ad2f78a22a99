"""``/api/users``: register a user."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec
from blacksheep import Response

from penstock.errors import InvalidArgument, InvalidName, StorageError, UserExists
from penstock.http.api.forms import Done, Form, Password, done, read_form
from penstock.http.auth.authenticator import Authenticator
from penstock.http.auth.user import Role, User
from penstock.http.auth.users import Users
from penstock.http.errors import Refusal, Refused, unauthorized
from penstock.http.exchange import IncomingRequest
from penstock.http.gate import Route
from penstock.http.openapi.operation import JSON, Answer, Operation, form
from penstock.settings import Settings, is_loopback

__all__ = ["UserCalls"]

_FORBIDDEN = HTTPStatus.FORBIDDEN


class NewUser(Form, frozen=True, kw_only=True):
    """`email` is what the user logs in with. It is unique."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    email: Annotated[str, msgspec.Meta(min_length=3, max_length=254)]
    password: Password
    role: Literal["user", "admin"] = "user"


class UserCreated(Done, frozen=True, kw_only=True):
    """`id` is how other calls refer to the user."""

    id: str


class UserCalls:
    """One handler per path."""

    def __init__(self, users: Users, authenticator: Authenticator, settings: Settings) -> None:
        self._users = users
        self._authenticator = authenticator
        self._settings = settings

    def routes(self) -> list[Route]:
        return [Route("POST", "/api/users/create", self.create, role=None, operation=_CREATE)]

    async def create(self, request: IncomingRequest) -> Response:
        asker = await self._asker(request)
        new = await read_form(request, NewUser)
        if "@" not in new.email:
            raise InvalidName(f"{new.email!r} is not an e-mail address: use one like a@example.org")
        role = Role[new.role.upper()]
        is_local = self._settings.is_on_loopback and not _is_of_a_site(request)
        user = await self._users.add(
            new.email,
            new.password,
            role,
            name=new.name,
            permit=lambda: self._permit(asker, role, is_local=is_local),
        )
        return done("user created.", id=user.id)

    async def _asker(self, request: IncomingRequest) -> User | None:
        header = request.first.get(b"authorization")
        if not header:
            return None
        user = await self._authenticator.identify(header)
        if user is None:
            raise unauthorized("the token or password is wrong: leave it out")
        return user

    def _permit(self, asker: User | None, role: Role, *, is_local: bool) -> None:
        """Raises `Refused` unless the caller may add such a user. An admin may add anybody."""
        if asker is not None:
            asker = self._users.by_id(asker.id)
            if asker is not None and asker.role is Role.ADMIN:
                return
        if role is Role.ADMIN:
            is_allowed = is_local and not self._has_admin()
            needed = "an admin is added by an admin"
        else:
            registration = self._settings.registration
            is_allowed = registration == "open" or (registration == "loopback" and is_local)
            needed = "on this server a user is added by an admin"
        if not is_allowed:
            message = f"{needed}: send an admin's token"
            raise unauthorized(message) if asker is None else Refused(_FORBIDDEN, message)

    def _has_admin(self) -> bool:
        """Whether there is an admin, other than the one with the password in the documentation."""
        return not self._settings.has_default_admin_password or any(
            user.role is Role.ADMIN for user in self._users.stored()
        )


def _is_of_a_site(request: IncomingRequest) -> bool:
    """Whether a web page of another machine sends this, from a browser that runs on this one."""
    origin = request.first.get(b"origin")
    if origin is None:
        return False
    try:
        return not is_loopback(urlsplit(origin.decode("latin-1")).hostname or "")
    except ValueError:
        return True


_CREATE = Operation(
    "Add a user",
    "users",
    (
        Answer(200, "It is added.", {JSON: UserCreated}),
        Answer(401, "It takes an admin, and nobody or somebody unknown asks.", {JSON: Refusal}),
        Answer(403, "It takes an admin, and a user asks.", {JSON: Refusal}),
        Answer(429, "Too many passwords; `Retry-After` says how long to wait.", {JSON: Refusal}),
    ),
    body=form(NewUser),
    errors=(InvalidArgument, InvalidName, UserExists, StorageError),
    about=(
        "Anybody may, while the server listens on loopback or registration is open. An admin is "
        "added by an admin; or by anybody, while there is none and the server listens on loopback."
    ),
)
