"""The publish command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

import msgspec

from penstock.core import events as ev
from penstock.core.bodies import PackedBodies
from penstock.core.config import check_list, check_text
from penstock.core.filters import Match, Subject
from penstock.core.limits import (
    MAX_BATCH_BYTES,
    MAX_BATCH_MESSAGES,
    MAX_BODY_BYTES,
    MAX_KEY_CHARACTERS,
    NANOSECONDS,
)
from penstock.core.machine import Machine
from penstock.core.message import (
    PLAIN,
    Envelope,
    NewMessage,
    PublishedMessage,
    check_body,
    encode_envelope,
    message_id,
)
from penstock.core.queue import Queue
from penstock.core.request_keys import PastRequest, runs_in_order
from penstock.core.retention import expire
from penstock.core.runs import runs_of
from penstock.errors import BatchTooLarge, InvalidArgument, QueueFull, ReservedQueue

__all__ = [
    "KeyedPart",
    "NewBatch",
    "PublishResult",
    "append",
    "is_repeated",
    "merge",
    "never_due",
    "prepare",
    "prepare_packed",
    "publish",
]


class KeyedPart(NamedTuple):
    """The part of a batch that one request published, with its idempotency key."""

    key: str
    start: int
    stop: int


class NewBatch(msgspec.Struct):
    """Checked and encoded messages. `envelopes` and `heads` are None if all messages are plain."""

    bodies: Sequence[bytes]
    envelopes: list[Envelope] | None
    heads: list[bytes] | None
    size: int
    keys: tuple[KeyedPart, ...] = ()

    def with_key(self, key: str) -> NewBatch:
        """The same batch as one request with this key. Raises `InvalidArgument`."""
        key = check_text("an idempotency key", key)
        if not 0 < len(key) <= MAX_KEY_CHARACTERS:
            raise InvalidArgument(
                f"an idempotency key has {len(key)} characters: use 1 to {MAX_KEY_CHARACTERS}"
            )
        parts = (KeyedPart(key, 0, len(self.bodies)),)
        return NewBatch(self.bodies, self.envelopes, self.heads, self.size, parts)


_ALL_BYTES = {bytes}


def prepare(messages: Sequence[NewMessage | bytes]) -> NewBatch:
    """Raises `InvalidArgument`, `MessageTooLarge` or `BatchTooLarge`."""
    if type(messages) is not list:
        messages = check_list("the batch", messages, "bytes or NewMessage")
    if len(messages) > MAX_BATCH_MESSAGES:
        raise BatchTooLarge(
            f"the batch has {len(messages)} messages, the limit is {MAX_BATCH_MESSAGES}: split it"
        )
    if {*map(type, messages)} != _ALL_BYTES:
        return _prepare_each(messages)
    size = sum(map(len, messages))  # type: ignore[arg-type]
    if size > MAX_BODY_BYTES and max(map(len, messages)) > MAX_BODY_BYTES:  # type: ignore[arg-type]
        return _prepare_each(messages)
    _check_size(size)
    return NewBatch(list(messages), None, None, size)  # type: ignore[arg-type]


def prepare_packed(bodies: PackedBodies) -> NewBatch:
    """Like `prepare`, for plain messages in one buffer, without touching each of them."""
    if len(bodies) > MAX_BATCH_MESSAGES or max(bodies.sizes, default=0) > MAX_BODY_BYTES:
        return prepare(list(bodies))
    _check_size(len(bodies.data))
    return NewBatch(bodies, None, None, len(bodies.data))


def _prepare_each(messages: Sequence[NewMessage | bytes]) -> NewBatch:
    bodies: list[bytes] = []
    envelopes: list[Envelope] = []
    for message in messages:
        if isinstance(message, bytes):
            bodies.append(bytes(message))
            envelopes.append(PLAIN)
        elif isinstance(message, NewMessage):
            check_body(message.body)
            bodies.append(bytes(message.body))
            envelopes.append(message.envelope())
        else:
            raise InvalidArgument(
                f"a message is {type(message).__name__}: pass bytes or a NewMessage"
            )
    for body in bodies:
        check_body(body)
    if all(envelope is PLAIN for envelope in envelopes):
        batch = NewBatch(bodies, None, None, sum(map(len, bodies)))
    else:
        heads = [b"" if e is PLAIN else encode_envelope(e) for e in envelopes]
        batch = NewBatch(bodies, envelopes, heads, sum(map(len, bodies)) + sum(map(len, heads)))
    _check_size(batch.size)
    return batch


def _check_size(size: int) -> None:
    if size > MAX_BATCH_BYTES:
        raise BatchTooLarge(f"the batch has {size} bytes, the limit is {MAX_BATCH_BYTES}: split it")


def merge(batches: Sequence[NewBatch]) -> NewBatch:
    """Join batches into one, in their order."""
    bodies: list[bytes] = []
    keys: list[KeyedPart] = []
    size = 0
    plain = True
    for batch in batches:
        start = len(bodies)
        keys += [KeyedPart(key, a + start, b + start) for key, a, b in batch.keys]
        bodies += batch.bodies
        size += batch.size
        plain = plain and batch.heads is None
    if plain:
        return NewBatch(bodies, None, None, size, tuple(keys))
    envelopes: list[Envelope] = []
    heads: list[bytes] = []
    for batch in batches:
        count = len(batch.bodies)
        envelopes += batch.envelopes or [PLAIN] * count
        heads += batch.heads or [b""] * count
    return NewBatch(bodies, envelopes, heads, size, tuple(keys))


class PublishResult(Sequence[PublishedMessage]):
    """One entry per message of the batch, in its order. Entries are made on access."""

    __slots__ = ("_created_ns", "_duplicates", "_indexes", "_salt", "durability")

    def __init__(
        self,
        indexes: Sequence[int],
        created_ns: int,
        salt: int,
        duplicates: dict[int, str],
        durability: str = "memory",
    ) -> None:
        self._indexes = indexes
        self._created_ns = created_ns
        self._salt = salt
        self._duplicates = duplicates
        self.durability = durability

    def __repr__(self) -> str:
        indexes = self._indexes
        where = f", indexes {indexes[0]} to {indexes[-1]}" if len(indexes) else ""
        return f"<PublishResult: {len(indexes)} messages{where}, durability {self.durability}>"

    def __len__(self) -> int:
        return len(self._indexes)

    @overload
    def __getitem__(self, at: int) -> PublishedMessage: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[PublishedMessage]: ...
    def __getitem__(self, at: int | slice) -> PublishedMessage | Sequence[PublishedMessage]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        index = self._indexes[at]
        duplicate = self._duplicates.get(at % len(self))
        if duplicate is not None:
            return PublishedMessage(index, duplicate, True)
        return PublishedMessage(index, message_id(self._created_ns, index, self._salt))

    def __iter__(self) -> Iterator[PublishedMessage]:
        return (self[at] for at in range(len(self)))

    def split(self, batches: Sequence[NewBatch]) -> list[PublishResult]:
        """The part for each of the batches that were merged into this one."""
        indexes, created_ns, salt = self._indexes, self._created_ns, self._salt
        parts = []
        start = 0
        for batch in batches:
            stop = start + len(batch.bodies)
            duplicates = self._duplicates
            if duplicates:
                duplicates = {at - start: id for at, id in duplicates.items() if start <= at < stop}
            parts.append(
                PublishResult(indexes[start:stop], created_ns, salt, duplicates, self.durability)
            )
            start = stop
        return parts

    @property
    def indexes(self) -> Sequence[int]:
        return self._indexes

    @property
    def has_duplicates(self) -> bool:
        return bool(self._duplicates)

    @property
    def created_ns(self) -> int:
        """When the messages were created. Duplicates are older."""
        return self._created_ns

    @property
    def salt(self) -> int:
        """The queue's salt, which is part of ids."""
        return self._salt

    @property
    def duplicates(self) -> dict[int, str]:
        """The ids of messages that existed before, by position in the batch."""
        return self._duplicates


def publish(machine: Machine, queue_name: str, batch: NewBatch, now_ns: int) -> PublishResult:
    """Store a batch, all or nothing.

    Raises `QueueFull`, `ReservedQueue` or `QueueNotFound`, and `InvalidArgument` for a message that
    would expire before it is due.

    A request whose idempotency key is known is answered as the first one was, and nothing is
    stored. Such a request must not be merged with others: see `is_repeated`.
    """
    queue = machine.queue(queue_name)
    if queue.source is not None or queue.events_of is not None:
        raise ReservedQueue(f"{queue_name!r} is written by the broker alone: publish elsewhere")
    if batch.keys and is_repeated(queue, batch, now_ns):
        return _repeat(queue, batch, now_ns)
    bodies, envelopes, heads, size = batch.bodies, batch.envelopes, batch.heads, batch.size
    first = queue.next
    duplicates: dict[int, str] = {}
    indexes: Sequence[int] = range(first, first + len(bodies))
    if envelopes is not None and any(e.dedup_key is not None for e in envelopes):
        known = _known(queue, envelopes, now_ns)
        if known:
            kept = [at for at in range(len(bodies)) if at not in known]
            indexes = _indexes(first, len(bodies), known)
            bodies = [bodies[at] for at in kept]
            envelopes = [envelopes[at] for at in kept]
            if heads is not None:
                heads = [heads[at] for at in kept]
            size = sum(map(len, bodies)) + (sum(map(len, heads)) if heads else 0)
            duplicates = {
                at: queue.id_of(index) if index < first else message_id(now_ns, index, queue.salt)
                for at, index in known.items()
            }
    if bodies:
        if envelopes is not None and (setting := _too_short(queue, envelopes, now_ns)):
            raise never_due(queue_name, setting)
        _check_bound(machine, queue, len(bodies), size, now_ns)
        kept_batch = NewBatch(bodies, envelopes, heads, size)
        append(machine, queue, kept_batch, now_ns, _answers(batch, indexes, duplicates))
    queue.duplicates += len(duplicates)
    return PublishResult(indexes, now_ns, queue.salt, duplicates)


def append(
    machine: Machine, queue: Queue, batch: NewBatch, now_ns: int, keys: dict[str, PastRequest]
) -> None:
    """Append a batch to a queue, unchecked. Runs the filters that need CEL."""
    matched: dict[int, list[int]] = {}
    errors: dict[int, int] = {}
    if queue.feeds.others:
        matched, errors = _match(queue, batch.bodies, batch.envelopes, now_ns)
    machine.emit(
        ev.Published(
            at_ns=now_ns,
            queue_id=queue.id,
            first=queue.next,
            count=len(batch.bodies),
            size=batch.size,
            envelopes=batch.envelopes,
            matched=matched,
            filter_errors=errors,
            keys=keys,
            bodies=batch.bodies,
            heads=batch.heads,
        )
    )


def is_repeated(queue: Queue, batch: NewBatch, now_ns: int) -> bool:
    """Whether any request in the batch was answered before. Such a batch must not be merged."""
    since_ns = queue.dedup_since_ns(now_ns)
    return any(queue.requests.get(part.key, since_ns) is not None for part in batch.keys)


def _too_short(queue: Queue, envelopes: Sequence[Envelope], now_ns: int) -> str:
    """The setting by which one of these would expire before it is due; empty if there is none."""
    config = queue.config
    ttl, retention = config.message_ttl_seconds, config.retention_seconds
    if config.retain_unsettled:
        retention = None
    if ttl is None and retention is None:
        return ""
    due_ns = max((e.not_before_ns for e in envelopes if e.not_before_ns is not None), default=0)
    delay_ns = due_ns - now_ns
    if ttl is not None and delay_ns >= round(ttl * NANOSECONDS):
        return "message_ttl_seconds"
    if retention is not None and delay_ns > round(retention * NANOSECONDS):
        return "retention_seconds"
    return ""


def never_due(queue_name: str, setting: str) -> InvalidArgument:
    return InvalidArgument(
        f"a message would expire before it is due, and never be delivered: choose an earlier time, "
        f"or raise {setting} of queue {queue_name!r}"
    )


def _repeat(queue: Queue, batch: NewBatch, now_ns: int) -> PublishResult:
    (part,) = batch.keys
    found = queue.requests.get(part.key, queue.dedup_since_ns(now_ns))
    assert found is not None
    created_ns, past = found
    indexes = past.indexes
    if len(indexes) != len(batch.bodies):
        raise InvalidArgument(
            f"the idempotency key {part.key[:80]!r} was used for a publish of {len(indexes)} "
            f"messages, and this one has {len(batch.bodies)}: give each publish its own"
        )
    ids = {
        at: past.duplicates.get(at) or message_id(created_ns, index, queue.salt)
        for at, index in enumerate(indexes)
    }
    queue.duplicates += len(indexes)
    return PublishResult(indexes, created_ns, queue.salt, ids)


def _answers(
    batch: NewBatch, indexes: Sequence[int], duplicates: dict[int, str]
) -> dict[str, PastRequest]:
    """The answer to each request, in case it is repeated."""
    answers = {}
    for key, start, stop in batch.keys:
        own = {at - start: id for at, id in duplicates.items() if start <= at < stop}
        answers[key] = PastRequest(runs_in_order(indexes[start:stop]), own)
    return answers


def _known(queue: Queue, envelopes: list[Envelope], now_ns: int) -> dict[int, int]:
    """Positions in the batch whose dedup key was seen, with the index of its first message."""
    queue.forget_dedup_keys(now_ns)
    known: dict[int, int] = {}
    new: dict[str, int] = {}
    for at, envelope in enumerate(envelopes):
        key = envelope.dedup_key
        if key is None:
            continue
        seen = queue.dedup.get(key)
        if seen is not None and queue.holds(seen.start):
            known[at] = seen.start
        elif key in new:
            known[at] = new[key]
        else:
            new[key] = queue.next + at - len(known)
    return known


def _indexes(first: int, count: int, known: dict[int, int]) -> list[int]:
    indexes = []
    for at in range(count):
        if at in known:
            indexes.append(known[at])
        else:
            indexes.append(first)
            first += 1
    return indexes


def _check_bound(machine: Machine, queue: Queue, count: int, size: int, now_ns: int) -> None:
    if _excess(queue, count, size):
        # What has expired may make room.
        expire(machine, queue, now_ns)
        excess = _excess(queue, count, size)
        if excess:
            raise QueueFull(
                f"queue {queue.name!r} is full: {excess}; nothing was stored, "
                "try again when consumers have caught up"
            )


def _excess(queue: Queue, count: int, size: int) -> str:
    config = queue.config
    if config.max_messages is not None:
        unsettled = max((s.unsettled for s in queue.subscriptions.values()), default=0)
        if unsettled + count > config.max_messages:
            return f"{unsettled} of {config.max_messages} messages are unsettled, {count} more came"
    if config.max_bytes is not None:
        floor = min((s.floor for s in queue.subscriptions.values()), default=queue.next)
        unsettled = queue.timeline.bytes_from(floor) if floor < queue.next else 0
        if unsettled + size > config.max_bytes:
            return f"{unsettled} of {config.max_bytes} bytes are unsettled, {size} more came"
    return ""


def _match(
    queue: Queue, bodies: Sequence[bytes], envelopes: list[Envelope] | None, now_ns: int
) -> tuple[dict[int, list[int]], dict[int, int]]:
    """The matches in the batch, and the errors, of each filter that needs CEL."""
    found: dict[int, list[int]] = {}
    errors: dict[int, int] = {}
    for index, body in enumerate(bodies, queue.next):
        envelope = PLAIN if envelopes is None else envelopes[index - queue.next]
        subject = make_subject(queue, index, now_ns, body, envelope)
        for feed in queue.feeds.others:
            if feed.filter is None:
                continue
            match = feed.filter.matches(subject)
            if match is Match.YES:
                found.setdefault(feed.id, []).append(index)
            elif match is Match.ERROR:
                errors[feed.id] = errors.get(feed.id, 0) + 1
    return {feed: ev.flat(runs_of(indexes)) for feed, indexes in found.items()}, errors


def make_subject(
    queue: Queue, index: int, created_ns: int, body: bytes, envelope: Envelope
) -> Subject:
    """A message as filters see it."""
    return Subject(
        body=body,
        attributes=envelope.attributes,
        topic=envelope.topic,
        priority=envelope.priority,
        id=lambda: message_id(created_ns, index, queue.salt),
    )
