"""Arguments and options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.completers import complete_queue, complete_subscription
from penstock.core.config import DEFAULT_SUBSCRIPTION

__all__ = ["DEFAULT_SUBSCRIPTION", "AsJson", "Limit", "Queue", "SubName", "Subscription", "Yes"]

Queue = Annotated[
    str,
    typer.Argument(
        help="The queue.", metavar="QUEUE", show_default=False, autocompletion=complete_queue
    ),
]
SubName = Annotated[
    str,
    typer.Argument(
        help="The subscription.",
        metavar="SUB",
        show_default=False,
        autocompletion=complete_subscription,
    ),
]
Subscription = Annotated[
    str,
    typer.Option(
        "--subscription",
        "-s",
        help="The subscription.",
        metavar="SUB",
    ),
]
Limit = Annotated[int, typer.Option("--limit", "-n", help="How many at most.", min=1)]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
