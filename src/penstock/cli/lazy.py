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
_INTERRUPTED = 130


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

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Stand-ins, to be listed, and to be suggested for a misspelt one.
        self.commands = {
            name: TyperCommand(name, help=entry.help, rich_help_panel=entry.panel)
            for name, entry in self.entries.items()
        }

    def main(self, *args: Any, **kwargs: Any) -> Any:
        if COMPLETE in os.environ:
            # typer's own completion options would do this; `penstock completion` replaces them.
            from typer._completion_classes import completion_init

            completion_init()
        return super().main(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.Abort as exc:
            # At a question, typer makes one of a Ctrl-C as well, and would exit with 1.
            if isinstance(exc.__context__, KeyboardInterrupt):
                raise typer.Exit(_INTERRUPTED) from None
            raise

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command itself, to be run or completed."""
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None:
            command = load(name, self.entries[name])
        return name, command, rest


def load(name: str, entry: Entry) -> Any:
    found = getattr(import_module(f"penstock.cli.{entry.module}"), entry.name)
    if isinstance(found, typer.Typer):
        group = typer.main.get_group(found)
        for command in group.commands.values():
            command.help = _in_paragraphs(command.help)
        return group
    alone = typer.Typer(add_completion=False)
    alone.command(name)(cast(Callable[..., Any], found))
    command = typer.main.get_command(alone)
    command.help = _in_paragraphs(command.help)
    return command


def _in_paragraphs(text: str | None) -> str | None:
    """Without the line ends of the source, which are not those of a terminal."""
    if text is None:
        return None
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))
