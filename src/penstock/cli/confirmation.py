"""Asking before something is deleted."""

from __future__ import annotations

import sys

import typer

from penstock.cli import exits

__all__ = ["confirm"]


def confirm(question: str, *, yes: bool) -> None:
    """Ends the program unless the answer is yes. Without a terminal, --yes is needed."""
    if yes:
        return
    if not sys.stdin.isatty():
        exits.usage(f"{question} Pass --yes: there is nobody to ask")
    if not typer.confirm(question, err=True):
        exits.stop("nothing was done", exits.REFUSED)
