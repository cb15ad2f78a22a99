"""``penstock sub``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from penstock.cli.config_options import with_settings
from penstock.cli.confirmation import confirm
from penstock.cli.connection import with_client
from penstock.cli.graph import mermaid
from penstock.cli.options import AsJson, Limit, Queue, SubName, Yes
from penstock.cli.output import (
    add_row,
    age,
    moment,
    number,
    plain,
    print_json,
    print_pairs,
    setting,
    show,
    table,
)
from penstock.cli.times import start_of
from penstock.core.config import SubscriptionConfig

if TYPE_CHECKING:
    from penstock.client import Client
    from penstock.core.callback import CallbackState
    from penstock.core.stats import SubscriptionStats

__all__ = ["app"]

app = typer.Typer(
    name="sub", help="Create, look at, alter and move subscriptions.", no_args_is_help=True
)

_COUNTERS = (
    "delivered",
    "redelivered",
    "acked",
    "nacked",
    "leases_expired",
    "filtered",
    "filter_errors",
    "expired",
    "skipped",
    "purged",
    "dead_lettered",
    "replayed",
    "discarded",
)
_START = "earliest, latest, an index, or a time with its zone."


@app.command("create")
@with_client
@with_settings(SubscriptionConfig, is_new=True)
def create(
    client: Client,
    queue: Queue,
    sub: SubName,
    settings: dict[str, Any],
    start: Annotated[
        str, typer.Option(help=f"Where it begins: {_START}", metavar="START")
    ] = "latest",
    if_absent: Annotated[
        bool, typer.Option("--if-absent", help="One with the same settings may be there.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create a subscription."""
    create = client.ensure_subscription if if_absent else client.create_subscription
    _show(create(queue, sub, start=start_of(start), **settings), as_json=as_json)


@app.command("list")
@with_client
def list_subscriptions(client: Client, queue: Queue, as_json: AsJson = False) -> None:
    """List the subscriptions of a queue."""
    found = client.subscriptions(queue)
    if as_json:
        print_json(found)
        return
    numbers = ("ready", "in flight", "delayed", "held", "oldest", "acked", "dead")
    cut = ("after", "filter")
    shown = table("subscription", *numbers, *cut, "", right=numbers, cut=cut)
    for one in found:
        add_row(
            shown,
            one.name,
            number(one.ready),
            number(one.in_flight),
            number(one.delayed + one.parked),
            number(one.held),
            age(one.oldest_unacked_seconds),
            number(one.acked),
            number(one.dead_lettered),
            ",".join(one.config.after),
            setting(one.config.filter) if one.config.filter else "",
            "paused" if one.config.paused else "",
        )
    show(shown)


@app.command("show")
@with_client
def show_one(client: Client, queue: Queue, sub: SubName, as_json: AsJson = False) -> None:
    """Look at a subscription."""
    _show(client.subscription_stats(queue, sub), as_json=as_json)


@app.command("alter")
@with_client
@with_settings(SubscriptionConfig, without=("filter",))
def alter(
    client: Client,
    queue: Queue,
    sub: SubName,
    settings: dict[str, Any],
    as_json: AsJson = False,
) -> None:
    """Alter settings of a subscription; the others stay as they are."""
    _show(client.alter_subscription(queue, sub, **settings), as_json=as_json)


@app.command("delete")
@with_client
def delete(
    client: Client, queue: Queue, sub: SubName, yes: Yes = False, as_json: AsJson = False
) -> None:
    """Delete a subscription; what waited for it alone is released."""
    confirm(f"Delete the subscription {sub} of {queue}?", yes=yes)
    client.delete_subscription(queue, sub)
    if as_json:
        print_json({"deleted": sub})
    else:
        typer.echo(f"deleted {sub} of {queue}")


@app.command("seek")
@with_client
def seek(
    client: Client,
    queue: Queue,
    sub: SubName,
    start: Annotated[str, typer.Argument(help=f"Where to: {_START}", metavar="START")],
    as_json: AsJson = False,
) -> None:
    """Move a subscription back or forward; deliveries in flight become void."""
    client.seek(queue, start_of(start), sub)
    _report(client, queue, sub, f"{sub} of {queue} goes on from {start}", as_json=as_json)


@app.command("pause")
@with_client
def pause(client: Client, queue: Queue, sub: SubName, as_json: AsJson = False) -> None:
    """Deliver nothing until it is resumed; leases go on."""
    client.pause(queue, sub)
    _report(client, queue, sub, f"paused {sub} of {queue}", as_json=as_json)


@app.command("resume")
@with_client
def resume(client: Client, queue: Queue, sub: SubName, as_json: AsJson = False) -> None:
    """Deliver again."""
    client.resume(queue, sub)
    _report(client, queue, sub, f"resumed {sub} of {queue}", as_json=as_json)


@app.command("rotate-secret")
@with_client
def rotate_secret(client: Client, queue: Queue, sub: SubName, as_json: AsJson = False) -> None:
    """Make a new secret for its callbacks; the former one signs as well until the next."""
    secret = client.rotate_secret(queue, sub)
    if as_json:
        print_json({"secret": secret})
    else:
        typer.echo(secret)


@app.command("graph")
@with_client
def graph(client: Client, queue: Queue, as_json: AsJson = False) -> None:
    """Draw which subscription waits for which, in Mermaid's language."""
    found = client.graph(queue)
    if as_json:
        print_json(found)
    else:
        typer.echo(mermaid(found))


@app.command("test-filter")
@with_client
def try_filter(
    client: Client,
    queue: Queue,
    filter: Annotated[str, typer.Argument(help="An expression in CEL.", metavar="FILTER")],
    last: Annotated[int, typer.Option(help="How many of the newest messages.", min=1)] = 100,
    as_json: AsJson = False,
) -> None:
    """Say which of the newest messages a filter takes, by index; nothing is changed."""
    found = client.test_filter(queue, filter, last)
    if as_json:
        print_json(found)
        return
    verdicts = {**dict.fromkeys(found.matched, "takes"), **dict.fromkeys(found.failed, "fails")}
    for index in sorted(verdicts):
        typer.echo(f"{index}\t{verdicts[index]}")
    typer.echo(
        f"of {number(found.tested)} messages it takes {number(len(found.matched))}, "
        f"and fails for {number(len(found.failed))}",
        err=True,
    )


@app.command("held")
@with_client
def held(
    client: Client, queue: Queue, sub: SubName, limit: Limit = 100, as_json: AsJson = False
) -> None:
    """List messages that wait for other subscriptions, by index, and for which."""
    messages = client.held_messages(queue, sub, limit)
    if as_json:
        print_json({"messages": messages})
    elif messages:
        typer.echo("\n".join(f"{one.index}\t{', '.join(one.waits_for)}" for one in messages))
    else:
        typer.echo(f"nothing waits on {sub} of {queue}", err=True)


@app.command("release")
@with_client
def release(
    client: Client,
    queue: Queue,
    sub: SubName,
    indexes: Annotated[list[int], typer.Argument(help="Which ones.", metavar="INDEX")],
    as_json: AsJson = False,
) -> None:
    """Deliver messages although a subscription they wait for has not taken them."""
    client.release(queue, sub, indexes)
    if as_json:
        print_json({"released": indexes})
    else:
        typer.echo(f"released {number(len(indexes))} of {queue} to {sub}")


def _report(client: Client, queue: str, sub: str, text: str, *, as_json: bool) -> None:
    """A sentence for people, and the subscription as it is now for programs."""
    if as_json:
        print_json(client.subscription_stats(queue, sub))
    else:
        typer.echo(text)


def _show(stats: SubscriptionStats, *, as_json: bool) -> None:
    if as_json:
        print_json(stats)
        return
    config = msgspec.structs.asdict(stats.config)
    secret = getattr(stats, "secret", None)
    print_pairs(
        [
            ("subscription", stats.name),
            ("created", moment(stats.created_at)),
            ("ready", number(stats.ready)),
            ("in flight", number(stats.in_flight)),
            ("delayed", number(stats.delayed)),
            ("parked", number(stats.parked)),
            ("held", number(stats.held)),
            ("oldest unacked", age(stats.oldest_unacked_seconds)),
            ("lowest unacked index", str(stats.lowest_unacked_index)),
            ("next new index", str(stats.cursor)),
            ("last delivery", moment(stats.last_delivery_at)),
            ("last ack", moment(stats.last_ack_at)),
            *((name.replace("_", " "), number(getattr(stats, name))) for name in _COUNTERS),
            *((name, setting(value)) for name, value in config.items()),
            *_calls(stats.callback),
            *([("secret", f"{secret} (it is not shown again)")] if secret else []),
        ]
    )


def _calls(state: CallbackState | None) -> list[tuple[str, str]]:
    """How its calls go, if it has a callback that a server is calling."""
    if state is None:
        return []
    return [
        ("circuit", state.circuit.replace("_", " ")),
        ("calls", number(state.calls)),
        ("calls that failed", number(state.failures)),
        ("calls under way", number(state.calls_under_way)),
        ("last status", "" if state.last_status is None else str(state.last_status)),
        ("last error", plain(state.last_error or "")),
        ("last success", moment(state.last_success_at)),
        ("next call", moment(state.next_call_at)),
    ]
