"""``/auth/*``: log in for a token, and change a password."""

from __future__ import annotations

from blacksheep import Response

from penstock.errors import InvalidArgument, StorageError, UserNotFound
from penstock.http.api.forms import Done, Form, Password, done, read_form
from penstock.http.auth.authenticator import Authenticator
from penstock.http.auth.tokens import Tokens
from penstock.http.auth.user import User
from penstock.http.auth.users import Users
from penstock.http.errors import Refusal, unauthorized
from penstock.http.exchange import IncomingRequest
from penstock.http.gate import Route
from penstock.http.openapi.operation import JSON, Answer, Operation, form

__all__ = ["Login"]

_TAG = "auth"


class Credentials(Form, frozen=True, kw_only=True):
    """One of `email`, `username` and `identifier`; each may be the name or the e-mail address."""

    email: str | None = None
    username: str | None = None
    identifier: str | None = None
    password: Password

    def who(self) -> str:
        given = [one for one in (self.email, self.username, self.identifier) if one is not None]
        if len(given) != 1:
            raise InvalidArgument("give one of email, username and identifier")
        return given[0]


class NewPassword(Credentials, frozen=True, kw_only=True):
    """`password` is the one that is valid until now."""

    new_password: Password


class LoggedIn(Done, frozen=True, kw_only=True):
    """`token` is a JSON Web Token, for the header `Authorization`."""

    token: str


class Login:
    """One handler per path."""

    def __init__(self, users: Users, authenticator: Authenticator, tokens: Tokens) -> None:
        self._users = users
        self._authenticator = authenticator
        self._tokens = tokens

    def routes(self) -> list[Route]:
        return [
            Route("POST", "/auth/local", self.log_in, role=None, operation=_LOG_IN),
            Route("POST", "/auth/password", self.set_password, role=None, operation=_SET_PASSWORD),
        ]

    async def log_in(self, request: IncomingRequest) -> Response:
        user = await self._user(await read_form(request, Credentials))
        await self._users.refresh()  # a token of who is not known to the store would be void
        return done("login success.", token=self._tokens.issue(user))

    async def set_password(self, request: IncomingRequest) -> Response:
        form = await read_form(request, NewPassword)
        user = await self._user(form)
        await self._users.set_password(user, form.new_password)
        return done("password changed.")

    async def _user(self, form: Credentials) -> User:
        user = await self._authenticator.check(form.who(), form.password)
        if user is None:
            raise unauthorized("name or password are wrong")
        return user


_REFUSED = (
    Answer(401, "Name or password are wrong.", {JSON: Refusal}),
    Answer(429, "Too many wrong passwords; `Retry-After` says how long to wait.", {JSON: Refusal}),
)
_LOG_IN = Operation(
    "Get a token for a password",
    _TAG,
    (Answer(200, "The token.", {JSON: LoggedIn}), *_REFUSED),
    body=form(Credentials),
    errors=(InvalidArgument,),
)
_SET_PASSWORD = Operation(
    "Change one's password; tokens that were given for the old one are void",
    _TAG,
    (Answer(200, "It is changed.", {JSON: Done}), *_REFUSED),
    body=form(NewPassword),
    errors=(InvalidArgument, UserNotFound, StorageError),
    about="Not for the users of the settings: theirs is changed there.",
)
