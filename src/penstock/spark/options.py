"""The options of the format, checked: an unknown or contradictory one is refused by its name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from penstock.core.limits import MAX_BATCH_MESSAGES, check_name
from penstock.errors import InvalidArgument, InvalidName
from penstock.shown_url import shown_url

__all__ = [
    "Connection",
    "ReadOptions",
    "WriteOptions",
    "check_queue",
    "read_options",
    "write_options",
]

Use = Literal["batch", "stream", "schema"]

_EXAMPLE = "http://127.0.0.1:8080"

_CONNECTION = (
    "url",
    "username",
    "password",
    "token",
    "caFile",
    "timeoutSeconds",
    "retrySeconds",
)
_READ = (
    *_CONNECTION,
    "subscribe",
    "subscribePattern",
    "stream",
    "startingOffsets",
    "failOnDataLoss",
    "includeBody",
    "bodyAs",
    "includePartitionHints",
    "minPartitions",
    "maxRecordsPerPartition",
    "fetchRows",
)
_BATCH = ("endingOffsets", "pushFilters")
_STREAM = ("subscription", "maxOffsetsPerTrigger")
_WRITE = (*_CONNECTION, "queue", "idempotencyKey", "chunkRows")
# With this many small messages a task takes a second or two; smaller tasks do not pay off.
_TASK_ROWS = 500_000
# Spark passes its own options along with ours.
_SPARKS = ("checkpointLocation", "queryName")


@dataclass(frozen=True, kw_only=True)
class Connection:
    """The address of a server, and credentials, which are kept out of the repr."""

    url: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    timeout_seconds: float = 30.0
    retry_seconds: float = 60.0


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """`subscribe` or `pattern` selects the queues; the positions are not parsed yet."""

    connection: Connection
    subscribe: tuple[str, ...] = ()
    pattern: str | None = None
    is_events: bool = False
    subscription: str = ""
    starting: str | None = None
    ending: str | None = None
    fail_on_data_loss: bool = True
    include_body: bool = True
    body_as_string: bool = False
    include_hints: bool = False
    min_partitions: int = 1
    max_records_per_partition: int = _TASK_ROWS
    fetch_rows: int = _TASK_ROWS
    max_offsets_per_trigger: int | None = None
    push_filters: bool = False


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """Without `queue`, each row names its own."""

    connection: Connection
    queue: str | None = None
    idempotency_key: str | None = None
    chunk_rows: int = MAX_BATCH_MESSAGES


def read_options(options: Mapping[str, str], use: Use) -> ReadOptions:
    """Raises `InvalidArgument`."""
    given = _Given(options, (*_READ, *_BATCH, *_STREAM))
    if use == "stream":
        given.refuse(_BATCH, "it is for batch reads: a stream has no end")
    elif use == "batch":
        given.refuse(_STREAM, "it is for streams")
    subscribe = tuple(name.strip() for name in given.text("subscribe").split(",") if name.strip())
    pattern = given.text("subscribePattern") or None
    if bool(subscribe) == bool(pattern):
        raise InvalidArgument(
            "subscribe and subscribePattern: give exactly one, a list of queues or a pattern"
        )
    for name in subscribe:
        check_queue(name)
    if len(set(subscribe)) < len(subscribe):
        raise InvalidArgument(f"subscribe is {','.join(subscribe)!r}: a queue is there twice")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as exc:
            raise InvalidArgument(f"subscribePattern is not a regular expression: {exc}") from exc
    subscription = given.text("subscription")
    if use == "stream":
        if not subscription:
            raise InvalidArgument(
                "a stream is a subscription: name it with the option subscription"
            )
        _check_name(subscription, "subscription")
    is_events = given.one_of("stream", ("messages", "events")) == "events"
    if is_events:
        given.refuse(("includeBody", "bodyAs"), "events have no body")
        given.refuse(("includePartitionHints", "pushFilters"), "it is for messages")
    include_body = given.flag("includeBody", True)
    if not include_body:
        given.refuse(("bodyAs",), "there is no body with includeBody=false")
    return ReadOptions(
        connection=given.connection(),
        subscribe=subscribe,
        pattern=pattern,
        is_events=is_events,
        subscription=subscription,
        starting=given.text("startingOffsets") or None,
        ending=given.text("endingOffsets") or None,
        fail_on_data_loss=given.flag("failOnDataLoss", True),
        include_body=include_body,
        body_as_string=given.one_of("bodyAs", ("binary", "string")) == "string",
        include_hints=given.flag("includePartitionHints", False),
        min_partitions=given.whole("minPartitions") or 1,
        max_records_per_partition=given.whole("maxRecordsPerPartition") or _TASK_ROWS,
        fetch_rows=given.whole("fetchRows") or _TASK_ROWS,
        max_offsets_per_trigger=given.whole("maxOffsetsPerTrigger"),
        push_filters=given.flag("pushFilters", False),
    )


def write_options(options: Mapping[str, str], *, is_stream: bool) -> WriteOptions:
    """Raises `InvalidArgument`."""
    given = _Given(options, _WRITE)
    if is_stream:
        given.refuse(
            ("idempotencyKey",), "a stream's keys are its query, batch, partition and chunk"
        )
    queue = given.text("queue") or None
    if queue is not None:
        check_queue(queue)
    key = given.text("idempotencyKey") or None
    if key is not None and not _fits_header(key):
        raise InvalidArgument(f"idempotencyKey is {key!r}: use printable characters of ASCII")
    chunk_rows = given.whole("chunkRows") or MAX_BATCH_MESSAGES
    if chunk_rows > MAX_BATCH_MESSAGES:
        raise InvalidArgument(f"chunkRows is {chunk_rows}: use {MAX_BATCH_MESSAGES} or less")
    return WriteOptions(
        connection=given.connection(),
        queue=queue,
        idempotency_key=key,
        chunk_rows=chunk_rows,
    )


class _Given:
    """The options as the user gave them, by lower-case name. Secrets never appear in errors."""

    def __init__(self, options: Mapping[str, str], known: tuple[str, ...]) -> None:
        self._values = {name.lower(): value for name, value in options.items()}
        names = {name.lower(): name for name in known}
        passed = {name.lower() for name in _SPARKS}
        for name in self._values:
            if name not in names and name not in passed:
                near = difflib.get_close_matches(name, names, n=1)
                hint = f": did you mean {names[near[0]]}?" if near else ""
                raise InvalidArgument(f"the option {name} is unknown{hint}")

    def refuse(self, names: tuple[str, ...], why: str) -> None:
        for name in names:
            if name.lower() in self._values:
                raise InvalidArgument(f"the option {name} cannot be used here: {why}")

    def text(self, name: str) -> str:
        return self._values.get(name.lower(), "").strip()

    def flag(self, name: str, default: bool) -> bool:
        value = self.text(name).lower()
        if value not in ("", "true", "false"):
            raise InvalidArgument(f"{name} is {value!r}: use true or false")
        return default if not value else value == "true"

    def one_of(self, name: str, allowed: tuple[str, ...]) -> str:
        value = self.text(name).lower() or allowed[0]
        if value not in allowed:
            raise InvalidArgument(f"{name} is {value!r}: use {' or '.join(allowed)}")
        return value

    def whole(self, name: str) -> int | None:
        value = self.text(name)
        if not value:
            return None
        if not (value.isascii() and value.isdigit() and int(value) > 0):
            raise InvalidArgument(f"{name} is {value!r}: use a whole number above 0")
        return int(value)

    def seconds(self, name: str, default: float) -> float:
        value = self.text(name)
        try:
            seconds = float(value) if value else default
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds < float("inf"):
            raise InvalidArgument(f"{name} is {value!r}: use a number of seconds")
        return seconds

    def connection(self) -> Connection:
        url = self.text("url")
        if not url:
            raise InvalidArgument(f"the option url is missing: use one like {_EXAMPLE}")
        try:
            parts = urlsplit(url)
            _ = parts.port  # raises if it is none
        except ValueError:
            parts = urlsplit("")
        if parts.username or parts.password:
            raise InvalidArgument("the url holds a name or password: use the options for them")
        is_server = parts.scheme in ("http", "https") and parts.hostname
        if not is_server or parts.query or parts.fragment:
            raise InvalidArgument(f"url is {shown_url(url)!r}: use one like {_EXAMPLE}")
        username, token = self.text("username") or None, self.text("token") or None
        if token and not _fits_header(token):
            raise InvalidArgument("the token has characters that no token has: pass one as it is")
        if token and username:
            raise InvalidArgument("username and token contradict each other: give one")
        # As it is: a blank may be part of it.
        password = self._values.get("password") or None
        if password and not username:
            raise InvalidArgument("there is a password without a username")
        return Connection(
            url=url.rstrip("/"),
            username=username,
            password=password,
            token=token,
            ca_file=self.text("caFile") or None,
            timeout_seconds=self.seconds("timeoutSeconds", 30.0),
            retry_seconds=self.seconds("retrySeconds", 60.0),
        )


def _fits_header(text: str) -> bool:
    """Whether it can be sent. Otherwise, the error would have it as a whole."""
    return text.isascii() and text.isprintable()


def check_queue(name: str) -> None:
    """Raises `InvalidArgument` for what cannot be the name of a queue."""
    _check_name(name, "queue")


def _check_name(name: str, what: str) -> None:
    try:
        check_name(name.removesuffix("-dlq") or name, what)
    except InvalidName as exc:
        raise InvalidArgument(str(exc)) from exc
