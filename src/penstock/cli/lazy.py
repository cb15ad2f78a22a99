"""Commands that are imported only when they are used."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any, ClassVar, NamedTuple, cast

import typer
from typer.core import TyperCommand, TyperGroup

__all__ = ["COMPLETE", "Entry", "LazyGroup", "load"]

COMPLETE = "_PENSTOCK_COMPLETE"


class Entry(NamedTuple):
    """Where a command is: a module of this package, and the name in it.

    That is a function, or a `typer.Typer` with commands of its own. `help` is repeated here, so
    that listing the commands imports none of them; a test keeps the two in step.
    """

    module: str
    name: str
    help: str
    panel: str


class LazyGroup(TyperGroup):
    """A group of which only the command that is asked for is imported."""

    entries: ClassVar[dict[str, Entry]] = {}

    def main(self, *args: Any, **kwargs: Any) -> Any:
        if COMPLETE in os.environ:
            # typer's own completion options would do this; `penstock completion` replaces them.
            from typer._completion_classes import completion_init

            completion_init()
        return super().main(*args, **kwargs)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.entries)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A stand-in, for the list of commands."""
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        return TyperCommand(cmd_name, help=entry.help, rich_help_panel=entry.panel)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command itself, to be run or completed."""
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None:
            command = load(name, self.entries[name])
        return name, command, rest


def load(name: str, entry: Entry) -> Any:
    found = getattr(import_module(f"penstock.cli.{entry.module}"), entry.name)
    if isinstance(found, typer.Typer):
        return typer.main.get_group(found)
    alone = typer.Typer(add_completion=False)
    alone.command(name)(cast(Callable[..., Any], found))
    return typer.main.get_command(alone)
