"""``penstock token``."""

from __future__ import annotations

import typer

from penstock.cli import exits
from penstock.cli.connection import Connection, with_connection
from penstock.cli.options import AsJson
from penstock.cli.output import print_json

__all__ = ["token"]


@with_connection
def token(connection: Connection, as_json: AsJson = False) -> None:
    """Print a token for a name and a password.

    For PENSTOCK_TOKEN, or the header Authorization of another program.
    """
    from penstock.client import Client

    if connection.token is not None:
        exits.usage("there is a token already: leave out --token and PENSTOCK_TOKEN")
    options = connection.options()
    name, password = options.pop("username", None), options.pop("password", None)
    if name is None:
        exits.usage("pass --user, or set PENSTOCK_USER")
    with Client(connection.url, **options) as client:
        found = client.log_in(name, password or "")
    if as_json:
        print_json({"token": found})
    else:
        typer.echo(found)
