"""Arguments and options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.core.config import DEFAULT_SUBSCRIPTION

__all__ = ["DEFAULT_SUBSCRIPTION", "Limit", "Queue", "SubName", "Subscription", "Yes"]

Queue = Annotated[str, typer.Argument(help="The queue.", metavar="QUEUE", show_default=False)]
SubName = Annotated[
    str, typer.Argument(help="The subscription.", metavar="SUB", show_default=False)
]
Subscription = Annotated[
    str, typer.Option("--subscription", "-s", help="The subscription.", metavar="SUB")
]
Limit = Annotated[int, typer.Option("--limit", "-n", help="How many at most.", min=1)]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
