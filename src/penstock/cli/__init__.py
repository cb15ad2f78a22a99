"""The command line: ``penstock``. One file for each group of commands."""

from __future__ import annotations

import typer

import penstock
from penstock.cli import pipeline, wal
from penstock.cli.serve import serve

__all__ = ["app", "main"]

app = typer.Typer(
    name="penstock",
    help="Penstock, a durable message queue.",
    epilog="Exit codes: 0 all is well, 1 damage was found, 2 wrong usage, 3 the store refused.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(serve)
app.add_typer(wal.app)
app.add_typer(pipeline.app)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"penstock {penstock.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", help="Show the version and exit.", callback=_show_version, is_eager=True
    ),
) -> None:
    pass


def main() -> None:
    """The entry point of the ``penstock`` command."""
    app()
