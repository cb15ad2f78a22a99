"""``penstock completion``."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer
from typer._completion_shared import get_completion_script

from penstock.cli.lazy import COMPLETE

__all__ = ["completion"]


class Shell(Enum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
    POWERSHELL = "powershell"


def completion(shell: Annotated[Shell, typer.Argument(help="For which shell.")]) -> None:
    """Print shell completion.

    For bash, in ~/.bashrc: source <(penstock completion bash). For zsh the same in ~/.zshrc, below
    compinit. For fish: penstock completion fish > ~/.config/fish/completions/penstock.fish.
    """
    typer.echo(
        get_completion_script(prog_name="penstock", complete_var=COMPLETE, shell=shell.value)
    )
