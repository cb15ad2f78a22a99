"""``penstock publish``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from penstock.cli import exits
from penstock.cli.connection import with_client
from penstock.cli.input import line_blocks, opened, total_bytes, whole_file
from penstock.cli.ndjson import ndjson_message
from penstock.cli.options import AsJson, Queue
from penstock.cli.output import print_lines, show
from penstock.cli.progress import reading
from penstock.cli.times import time_of
from penstock.clock import SystemClock
from penstock.core.message import DEFAULT_CONTENT_TYPE, NewMessage, to_datetime
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.client import Client, Published

__all__ = ["publish"]

_BATCH_BYTES = 4 * 1024 * 1024


@with_client
def publish(
    client: Client,
    queue: Queue,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            help="Files to publish, each as one message; - is standard input.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option("--message", "-m", help="A message; may be repeated.", metavar="TEXT"),
    ] = None,
    lines: Annotated[bool, typer.Option("--lines", help="Each line is a message.")] = False,
    ndjson: Annotated[
        bool, typer.Option("--ndjson", help="Each line is a message as JSON, with all its fields.")
    ] = False,
    content_type: Annotated[
        str | None, typer.Option(help="What the bodies are.", metavar="TYPE")
    ] = None,
    attribute: Annotated[
        list[str] | None,
        typer.Option("--attribute", "-a", help="May be repeated.", metavar="NAME=VALUE"),
    ] = None,
    topic: Annotated[str | None, typer.Option(help="Their topic.")] = None,
    priority: Annotated[int, typer.Option(help="Higher first.", min=0, max=10)] = 0,
    delay: Annotated[
        float | None, typer.Option(help="Deliver them this many seconds from now.", min=0)
    ] = None,
    not_before: Annotated[
        str | None, typer.Option(help="Do not deliver them before.", metavar="TIME")
    ] = None,
    ttl: Annotated[
        float | None, typer.Option(help="They expire this many seconds from now.", min=0.001)
    ] = None,
    expires_at: Annotated[
        str | None, typer.Option(help="They expire then, if nobody took them.", metavar="TIME")
    ] = None,
    group_key: Annotated[
        str | None, typer.Option(help="A FIFO queue keeps order within it.", metavar="KEY")
    ] = None,
    dedup_key: Annotated[
        str | None,
        typer.Option(help="Of a single message: a second one is not stored.", metavar="KEY"),
    ] = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option(
            help="The same publish once more, with the same key, stores nothing twice.",
            metavar="KEY",
        ),
    ] = None,
    batch: Annotated[int, typer.Option(help="Messages in a request.", min=1, max=10_000)] = 1000,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Publish messages to a queue.

    Without files and -m it reads standard input. All of a request is stored or nothing; with
    --lines and --ndjson a large input takes several requests, and if one is refused, those before
    it stay.
    """
    if lines and ndjson:
        exits.usage("use either --lines or --ndjson")
    if text and files:
        exits.usage("use either -m or files")
    if idempotency_key == "":
        # As from a variable that is not set: what others publish so would be taken for the same.
        exits.usage("--idempotency-key is empty: give each publish a key of its own")
    attributes = _attributes(attribute or [])

    def template() -> NewMessage:
        # Made for what was just read: a pipe may go on for days.
        now = to_datetime(SystemClock().now_ns())
        return NewMessage(
            body=b"",
            content_type=content_type or DEFAULT_CONTENT_TYPE,
            attributes=attributes,
            topic=topic,
            priority=priority,
            not_before=_moment("not-before", not_before, "delay", delay, now),
            expires_at=_moment("expires-at", expires_at, "ttl", ttl, now),
            group_key=group_key,
            dedup_key=dedup_key,
        )

    template()  # wrong usage is said before anything is read
    paths = files or ["-"]
    is_typed = not text and "-" in paths and sys.stdin.isatty()
    if is_typed:
        typer.echo("reading what you type; Ctrl-D ends it", err=True)
    total = total_bytes(paths) if lines or ndjson else None
    report = None if quiet else _report(as_json)
    publisher = _Publisher(client, queue, idempotency_key, dedup_key, report)
    try:
        if text:
            bodies = [one.encode(errors="surrogateescape") for one in text]
            publisher.send_all([_with_bodies(template(), bodies)], batch)
        elif lines or ndjson:
            with reading(total, is_shown=not is_typed) as advance:
                blocks = _read(paths, template, advance, is_ndjson=ndjson)
                publisher.send_all(blocks, batch)
        else:
            bodies = [whole_file(path) for path in paths]
            publisher.send_all([_with_bodies(template(), bodies)], batch)
    except (PenstockError, typer.Exit, KeyboardInterrupt) as exc:
        if publisher.count:
            # Of the request that Ctrl-C cut off, nobody knows.
            least = "at least " if isinstance(exc, KeyboardInterrupt) else ""
            typer.echo(f"published before that: {least}{_messages(publisher.count)}", err=True)
        raise
    if not quiet and not as_json:
        show(publisher.summary())


class _Publisher:
    """Sends batches one after the other, and counts what was published."""

    def __init__(
        self,
        client: Client,
        queue: str,
        key: str | None,
        dedup_key: str | None,
        report: Callable[[Published], None] | None,
    ) -> None:
        self._client = client
        self._queue = queue
        self._key = key
        self._dedup_key = dedup_key
        self._has_sent_dedup_key = False
        self._report = report
        self._first: int | None = None
        self._last = 0
        self._duplicates = 0
        self._durability = ""
        self._sent = 0
        self.count = 0

    def send_all(self, blocks: Iterable[list[NewMessage]], batch: int) -> None:
        for block in blocks:
            for messages in _batches(block, batch):
                self._send(messages)

    def _check_dedup_key(self, messages: list[NewMessage]) -> None:
        """Refuse a second message with the key of the option: it would be dropped."""
        if self._dedup_key is None:
            return
        count = sum(one.dedup_key == self._dedup_key for one in messages)
        if count + self._has_sent_dedup_key > 1:
            exits.usage(
                "--dedup-key is for a single message, and would drop all others: use "
                "--idempotency-key, or a dedup_key in each line of --ndjson"
            )
        self._has_sent_dedup_key = self._has_sent_dedup_key or count > 0

    def _send(self, messages: list[NewMessage]) -> None:
        self._check_dedup_key(messages)
        if self._key is not None:
            messages = [
                one if one.dedup_key else _with_key(one, f"{self._key}/{self._sent + at}")
                for at, one in enumerate(messages)
            ]
        self._sent += len(messages)
        published = self._client.publish(self._queue, messages)
        self.count += len(published)
        self._durability = published.durability
        for one in published:
            if one.duplicate:
                self._duplicates += 1
            else:
                self._first = one.index if self._first is None else self._first
                self._last = one.index
        if self._report is not None:
            self._report(published)

    def summary(self) -> str:
        if not self.count:
            return "there was nothing to publish"
        new = self.count - self._duplicates
        where = ""
        if self._first is not None:
            span = f"{self._first} to {self._last}" if self._last > self._first else self._first
            where = f", index {span}"
        more = f"; {self._duplicates} were there already" if self._duplicates else ""
        return f"published {_messages(new)} to {self._queue}{where} ({self._durability}){more}"


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count} messages"


def _report(as_json: bool) -> Callable[[Published], None] | None:
    if not as_json:
        return None

    def lines(published: Published) -> None:
        durability = {"durability": published.durability}
        print_lines(msgspec.structs.asdict(one) | durability for one in published)

    return lines


def _read(
    paths: list[str],
    template: Callable[[], NewMessage],
    advance: Callable[[str, int], None],
    *,
    is_ndjson: bool,
) -> Iterator[list[NewMessage]]:
    for path in paths:
        with opened(path) as source:

            def more(count: int, name: str = source.name) -> None:
                advance(name, count)

            for block in line_blocks(source, more):
                model = template()
                if is_ndjson:
                    yield [ndjson_message(line, source.name, model) for line in block]
                else:
                    yield _with_bodies(model, [line.text for line in block])


def _batches(messages: list[NewMessage], most: int) -> Iterator[list[NewMessage]]:
    batch: list[NewMessage] = []
    size = 0
    for message in messages:
        size += len(message.body)
        if batch and (len(batch) == most or size > _BATCH_BYTES):
            yield batch
            batch, size = [], len(message.body)
        batch.append(message)
    if batch:
        yield batch


def _with_bodies(template: NewMessage, bodies: Iterable[bytes]) -> list[NewMessage]:
    return [msgspec.structs.replace(template, body=body) for body in bodies]


def _with_key(message: NewMessage, key: str) -> NewMessage:
    return msgspec.structs.replace(message, dedup_key=key)


def _attributes(pairs: list[str]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            exits.usage(f"the attribute {pair!r} has no name and value: use -a name=value")
        found[name] = value
    return found


def _moment(
    name: str, text: str | None, other: str, seconds: float | None, now: datetime
) -> datetime | None:
    if text is not None and seconds is not None:
        exits.usage(f"use either --{name} or --{other}")
    if seconds is not None:
        try:
            return now + timedelta(seconds=seconds)
        except OverflowError:
            exits.usage(f"--{other} is {seconds:g} seconds, which no calendar has: use fewer")
    return None if text is None else time_of(name, text)
