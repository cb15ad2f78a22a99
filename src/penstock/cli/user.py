"""``penstock user``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from penstock.cli import exits
from penstock.cli.confirmation import confirm
from penstock.cli.connection import with_client
from penstock.cli.options import AsJson, Yes
from penstock.cli.output import add_row, number, plain, print_json, show, table

if TYPE_CHECKING:
    from penstock.client import Client, User

__all__ = ["app"]

# More than any server takes.
_MOST_CHARACTERS = 10_000

app = typer.Typer(name="user", help="Add, list, change and remove users.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The user's name or e-mail address.", metavar="USER")]
Role = Literal["USER", "ADMIN"]
Limit = Annotated[
    int | None, typer.Option("--rate-limit", help="Requests a second; 0 is no limit.", min=0)
]


@app.command("list")
@with_client
def list_users(client: Client, as_json: AsJson = False) -> None:
    """List the users that were added."""
    users = client.users()
    if as_json:
        print_json(users)
        return
    shown = table("user", "role", "rate limit", right=("rate limit",))
    for one in users:
        add_row(shown, plain(one.username), one.role, _limit(one))
    show(shown if users else "no users were added.")


@app.command("add")
@with_client
def add(
    client: Client,
    name: Name,
    role: Annotated[Role, typer.Option(help="What it may do.")] = "USER",
    rate_limit: Limit = None,
    as_json: AsJson = False,
) -> None:
    """Add a user; its password is asked for, or read from standard input."""
    made = client.add_user(name, _password(), role=role, rate_limit=rate_limit or 0)
    _report(f"added {plain(name)}", made, as_json=as_json)


@app.command("set")
@with_client
def change(
    client: Client,
    name: Name,
    new_password: Annotated[
        bool,
        typer.Option(
            "--new-password", help="Give it another one, asked for, or read from standard input."
        ),
    ] = False,
    role: Annotated[Role | None, typer.Option(help="What it may do.")] = None,
    rate_limit: Limit = None,
    as_json: AsJson = False,
) -> None:
    """Change a user's password, role or limit.

    Tokens that were given for an old password are void at once.
    """
    if not new_password and role is None and rate_limit is None:
        exits.usage("say what to change: --new-password, --role or --rate-limit")
    changed = client.alter_user(
        name, password=_password() if new_password else None, role=role, rate_limit=rate_limit
    )
    _report(f"changed {plain(name)}", changed, as_json=as_json)


@app.command("remove")
@with_client
def remove(client: Client, name: Name, yes: Yes = False, as_json: AsJson = False) -> None:
    """Remove a user, who is refused from then on and called back no more."""
    confirm(f"Remove the user {plain(name)}?", yes=yes)
    client.remove_user(name)
    if as_json:
        print_json({"removed": name})
    else:
        typer.echo(f"removed {plain(name)}")


def _password() -> str:
    """Asked for, or read from standard input. Never an option: others could see it in `ps`."""
    if sys.stdin.isatty():
        return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    password = sys.stdin.readline(_MOST_CHARACTERS + 1).rstrip("\r\n")
    if len(password) > _MOST_CHARACTERS:
        exits.usage("the first line of standard input is too long for a password")
    if not password:
        exits.usage("there is no password: write it to standard input")
    return password


def _limit(user: User) -> str:
    return number(user.rate_limit) if user.rate_limit > 0 else "none"


def _report(text: str, user: User, *, as_json: bool) -> None:
    if as_json:
        print_json(user)
    else:
        typer.echo(f"{text}: {user.role}, rate limit {_limit(user)}")
