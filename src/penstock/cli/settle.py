"""``penstock ack``, ``nack`` and ``extend``."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from penstock.cli import exits
from penstock.cli.connection import with_client
from penstock.cli.input import Line, line_blocks, opened
from penstock.cli.options import DEFAULT_SUBSCRIPTION, AsJson, Queue, Subscription
from penstock.cli.output import print_json, print_lines
from penstock.core.outcome import Outcome
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.client import Client

__all__ = ["ack", "extend", "nack"]

_BATCH = 1000

Targets = Annotated[
    list[str] | None,
    typer.Argument(
        help="Receipts or message ids; - reads them from standard input, one per line, or the "
        "lines of receive --json.",
        metavar="TARGET",
        show_default=False,
    ),
]


@with_client
def ack(
    client: Client,
    queue: Queue,
    targets: Targets = None,
    up_to: Annotated[
        int | None,
        typer.Option(help="All below this index, delivered or not.", metavar="INDEX", min=0),
    ] = None,
    subscription: Subscription = DEFAULT_SUBSCRIPTION,
    as_json: AsJson = False,
) -> None:
    """Say that deliveries are done with.

    Exits with 1 when one of them can no longer be settled. What somebody settled before
    counts as done.
    """
    if up_to is not None:
        if targets:
            exits.usage("use either targets or --up-to")
        count = client.ack_up_to(queue, up_to, subscription)
        if as_json:
            print_json({"acked_up_to": count})
        else:
            typer.echo(f"{count} settled")
        return
    _settle(
        targets,
        lambda batch: client.ack(queue, batch, subscription),
        {Outcome.DONE, Outcome.ALREADY_SETTLED},
        as_json=as_json,
    )


@with_client
def nack(
    client: Client,
    queue: Queue,
    targets: Targets = None,
    delay: Annotated[
        float | None,
        typer.Option(
            help="Seconds until they are delivered again; by the backoff, if absent.", min=0
        ),
    ] = None,
    reason: Annotated[str, typer.Option(help="Why; a dead letter keeps it.")] = "",
    subscription: Subscription = DEFAULT_SUBSCRIPTION,
    as_json: AsJson = False,
) -> None:
    """Return deliveries that failed, to be delivered again.

    Exits with 1 when one of them was not in flight any more.
    """
    _settle(
        targets,
        lambda batch: client.nack(queue, batch, subscription, delay_seconds=delay, reason=reason),
        {Outcome.DONE},
        as_json=as_json,
    )


@with_client
def extend(
    client: Client,
    queue: Queue,
    targets: Targets = None,
    seconds: Annotated[
        float, typer.Option(help="Until the leases end, counted from now.", min=0.001)
    ] = 30.0,
    subscription: Subscription = DEFAULT_SUBSCRIPTION,
    as_json: AsJson = False,
) -> None:
    """Extend the leases of deliveries.

    Exits with 1 when one of them was not in flight any more.
    """
    _settle(
        targets,
        lambda batch: client.extend(queue, batch, seconds, subscription),
        {Outcome.DONE},
        as_json=as_json,
    )


def _settle(
    targets: list[str] | None,
    settle: Callable[[list[str]], list[Outcome]],
    good: set[Outcome],
    *,
    as_json: bool,
) -> None:
    """Settle batch by batch, and report each outcome. One that is not ``good`` is a failure.

    From a pipe, what has come so far is settled without waiting for more.
    """
    if not targets:
        exits.usage("name receipts or message ids, or - to read them from standard input")
    done = failed = 0
    try:
        for batch in _batches(targets):
            outcomes = settle(batch)
            bad = _report(batch, outcomes, good, as_json=as_json)
            failed += bad
            done += len(batch) - bad
    except (PenstockError, typer.Exit, KeyboardInterrupt):
        if done:
            typer.echo(f"{done} were done before that", err=True)
        raise
    if not as_json:
        typer.echo(f"{done} done")
    if failed:
        raise typer.Exit(exits.REFUSED)


def _batches(targets: list[str]) -> Iterator[list[str]]:
    named = [target for target in targets if target != "-"]
    read = _from_input() if "-" in targets else ()
    for block in itertools.chain([named], read):
        for at in range(0, len(block), _BATCH):
            yield block[at : at + _BATCH]


class _Delivery(msgspec.Struct, frozen=True):
    receipt: str


def _from_input() -> Iterator[list[str]]:
    with opened("-") as source:
        for block in line_blocks(source, lambda count: None):
            yield [_target(line, source.name) for line in block]


def _target(line: Line, name: str) -> str:
    """A line without a target ends the program."""
    try:
        if line.text.startswith(b"{"):
            return msgspec.json.decode(line.text, type=_Delivery).receipt
        return line.text.decode().strip()
    except ValueError as exc:
        exits.usage(f"line {line.number} of {name} has no receipt: {exc}")


def _report(
    targets: list[str], outcomes: list[Outcome], good: set[Outcome], *, as_json: bool
) -> int:
    """Returns how many are not ``good``."""
    if as_json:
        print_lines(
            {"target": target, "outcome": outcome}
            for target, outcome in zip(targets, outcomes, strict=True)
        )
    bad = [
        (target, outcome)
        for target, outcome in zip(targets, outcomes, strict=True)
        if outcome not in good
    ]
    for target, outcome in bad:
        typer.echo(f"{outcome.value}: {target}", err=True)
    return len(bad)
