"""``penstock doctor``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from penstock.cli import exits
from penstock.cli.checks import (
    Finding,
    Verdict,
    check_clock,
    check_directory,
    check_files,
    check_health,
    check_version,
)
from penstock.cli.connection import Connection, is_loopback, with_connection
from penstock.cli.options import AsJson
from penstock.cli.output import print_json, show, table
from penstock.clock import SystemClock
from penstock.core.message import to_datetime
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.client import Client

__all__ = ["doctor"]

_STYLES = {Verdict.GOOD: "green", Verdict.WARNING: "yellow", Verdict.BAD: "bold red"}


@with_connection
def doctor(
    connection: Connection,
    data: Annotated[
        str | None,
        typer.Option(
            help="The server's data directory, if it is on this machine.",
            envvar="PENSTOCK_DATA",
            metavar="DIR",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a server and this machine.

    Every line says what is well, or what to do. Exits with 1 when something is bad, and with 4 when
    the server cannot be reached.
    """
    findings, is_reached = _server(connection)
    if is_loopback(connection.url) or data is not None:
        findings += check_directory(data)
        findings.append(check_files(data))
    if as_json:
        print_json([msgspec.structs.asdict(one) for one in findings])
    else:
        _print(findings)
    if not is_reached:
        raise typer.Exit(exits.UNREACHABLE)
    if any(one.verdict is Verdict.BAD for one in findings):
        raise typer.Exit(exits.REFUSED)


def _server(connection: Connection) -> tuple[list[Finding], bool]:
    from penstock.client import Client

    with Client(connection.url, **connection.options()) as client:
        try:
            health = client.health()
        except PenstockError as exc:
            text = f"{exc}. Start one with `penstock serve`, or name it with --url"
            return [Finding(check="server", verdict=Verdict.BAD, text=text)], False
        now = to_datetime(SystemClock().now_ns())
        took = f"{client.url} answers within {health.round_trip_seconds * 1000:.1f} ms"
        return [
            Finding(check="server", verdict=Verdict.GOOD, text=took),
            check_version(health),
            *check_health(health),
            check_clock(health, now),
            _credentials(client, connection),
        ], True


def _credentials(client: Client, connection: Connection) -> Finding:
    from penstock.client import Unauthorized

    try:
        found = len(client.stats())
    except PenstockError as exc:
        text = f"cannot be checked: {exc}"
        if isinstance(exc, Unauthorized):
            text = f"{exc}. Pass --user and --password, or set PENSTOCK_USER and PENSTOCK_PASSWORD"
        return Finding(check="credentials", verdict=Verdict.BAD, text=text)
    queues = "1 queue" if found == 1 else f"{found} queues"
    who = "the token" if connection.token else connection.user or "a new server's administrator"
    if connection.token or connection.user or not is_loopback(connection.url):
        return Finding(check="credentials", verdict=Verdict.GOOD, text=f"{who}: {queues}")
    text = (
        f"the passwords are those in the documentation ({queues}). For more than trying "
        "out, start the server with PENSTOCK_ADMIN_PASSWORD and PENSTOCK_USER_PASSWORD"
    )
    return Finding(check="credentials", verdict=Verdict.WARNING, text=text)


def _print(findings: list[Finding]) -> None:
    from rich.text import Text

    shown = table("", "check", "says", cut=("says",))
    for one in findings:
        shown.add_row(one.verdict.value, one.check, Text(one.text), style=_STYLES[one.verdict])
    show(shown)
