"""How a command reaches the server: the options, the client, and what becomes of errors.

A command says ``@with_client`` and takes a client as its first argument.
"""

from __future__ import annotations

import functools
import inspect
import signal
import ssl
import sys
import threading
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, NamedTuple, ParamSpec, cast
from urllib.parse import urlsplit

import typer

from penstock.cli import exits
from penstock.errors import InvalidArgument, PenstockError

if TYPE_CHECKING:
    from penstock.client import Client
    from penstock.client.options import ClientOptions

__all__ = ["Connection", "is_loopback", "with_client", "with_connection"]

P = ParamSpec("P")

_PANEL = "Connection"
_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)

# What a new server has, and accepts only on loopback.
_DEFAULT_USER = "admin"
_DEFAULT_PASSWORD = "adminpassword"


class Connection(NamedTuple):
    """Where the server is, and who is asking. Its fields are options of every command with it."""

    url: Annotated[
        str,
        typer.Option(help="The server.", envvar="PENSTOCK_URL", rich_help_panel=_PANEL),
    ] = "http://127.0.0.1:8080"
    user: Annotated[
        str | None,
        typer.Option(
            help="Who you are. On loopback, if absent, a new server's administrator.",
            envvar="PENSTOCK_USER",
            rich_help_panel=_PANEL,
        ),
    ] = None
    password: Annotated[
        str | None,
        typer.Option(
            help="Better in the environment, where `ps` does not show it.",
            envvar="PENSTOCK_PASSWORD",
            rich_help_panel=_PANEL,
        ),
    ] = None
    token: Annotated[
        str | None,
        typer.Option(
            help="A bearer token, instead of name and password.",
            envvar="PENSTOCK_TOKEN",
            rich_help_panel=_PANEL,
        ),
    ] = None
    ca: Annotated[
        str | None,
        typer.Option(
            help="Trust the certificates in this PEM file.",
            envvar="PENSTOCK_CA",
            metavar="FILE",
            rich_help_panel=_PANEL,
        ),
    ] = None
    timeout: Annotated[
        float,
        typer.Option(help="Seconds to wait for an answer.", min=0.001, rich_help_panel=_PANEL),
    ] = 30.0
    retries: Annotated[
        int,
        typer.Option(
            help="How often a request is sent again, where that is safe.",
            min=0,
            rich_help_panel=_PANEL,
        ),
    ] = 2

    def options(self) -> ClientOptions:
        """The client's options. Asks for a missing password, if there is somebody to ask."""
        from penstock.client import Retry

        found: ClientOptions = {
            "timeout_seconds": self.timeout,
            "retry": Retry(attempts=self.retries + 1),
            "tls": self._tls(),
        }
        if self.token is not None:
            return found | {"token": self.token}
        if self.user is not None:
            return found | {"username": self.user, "password": self._password()}
        if self.password is not None:
            exits.usage("there is a password but no name: pass --user or set PENSTOCK_USER")
        if is_loopback(self.url):
            return found | {"username": _DEFAULT_USER, "password": _DEFAULT_PASSWORD}
        return found

    def client(self) -> Client:
        """A client, to be closed. A malformed address or name is wrong usage."""
        from penstock.client import Client

        options = self.options()
        try:
            return Client(self.url, **options)
        except InvalidArgument as exc:
            exits.usage(f"{exc.code}: {exc}")

    def _password(self) -> str:
        if self.password is not None:
            return self.password
        if not sys.stdin.isatty():
            exits.usage(
                f"there is no password for {self.user}: set PENSTOCK_PASSWORD, or pass --password"
            )
        return str(typer.prompt(f"Password of {self.user}", hide_input=True, err=True))

    def _tls(self) -> ssl.SSLContext | None:
        if self.ca is None:
            return None
        try:
            return ssl.create_default_context(cafile=self.ca)
        except OSError as exc:
            reason = exc.strerror or str(exc)
            exits.usage(f"the certificates in {self.ca} cannot be read: {reason}")


def is_loopback(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def with_client(command: Callable[Concatenate[Client, P], None]) -> Callable[..., None]:
    """Give a command that takes a client the options of a connection instead.

    What the client raises ends the program, with one sentence and an exit code.
    """

    @functools.wraps(command)
    def connected(connection: Connection, /, *args: P.args, **kwargs: P.kwargs) -> None:
        with connection.client() as client:
            command(client, *args, **kwargs)

    return with_connection(connected)


def with_connection(command: Callable[Concatenate[Connection, P], None]) -> Callable[..., None]:
    """Like `with_client`, for a command that makes its client itself."""
    own = _parameters(command)
    added = {
        name: inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=Connection._field_defaults[name],
            annotation=hint,
        )
        for name, hint in typing.get_type_hints(Connection, include_extras=True).items()
    }

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        connection = Connection(**{name: arguments.pop(name) for name in added})
        with _endings():
            run_it = cast(Callable[..., None], command)
            run_it(connection, **arguments)

    # Otherwise `inspect` would look at the wrapped command.
    del run.__wrapped__
    parameters = {**own, **added}
    run.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    run.__annotations__ = {name: one.annotation for name, one in parameters.items()}
    return run


def _parameters(command: Callable[..., None]) -> dict[str, inspect.Parameter]:
    """All but the first, with their types. The first one's type is imported only when needed."""
    _, *own = inspect.signature(command).parameters.values()
    stated = SimpleNamespace(__annotations__={one.name: one.annotation for one in own})
    names = inspect.unwrap(command).__globals__
    hints = typing.get_type_hints(stated, names, include_extras=True)
    return {
        one.name: one.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[one.name])
        for one in own
    }


@contextmanager
def _endings() -> Iterator[None]:
    try:
        with _interrupts():
            yield
        sys.stdout.flush()
    except PenstockError as exc:
        exits.fail(exc)


@contextmanager
def _interrupts() -> Iterator[None]:
    """Treat SIGTERM, and the loss of the terminal, like Ctrl-C: what was made is undone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    taken = [one for one in _ENDING_SIGNALS if signal.getsignal(one) is signal.SIG_DFL]
    for one in taken:
        # Raised as SIGINT, because an event loop has its own handler for that.
        signal.signal(one, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        for one in taken:
            signal.signal(one, signal.SIG_DFL)
