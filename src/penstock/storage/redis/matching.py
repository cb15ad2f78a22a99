"""What a publish passes to Redis: the batch, and the matches of each filter in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from penstock.core.filters import Match, Subject
from penstock.core.message import PLAIN, Envelope, Message
from penstock.core.publishing import NewBatch
from penstock.core.runs import runs_of
from penstock.storage.redis.definitions import Feed
from penstock.storage.redis.messages import MICROSECONDS

__all__ = ["extra_of", "looks_at_ids", "matches", "pack_extras", "pack_matches", "payload"]

_pack = msgspec.msgpack.Encoder().encode


def payload(batch: NewBatch, events: str) -> list[str | bytes | int]:
    """The idempotency key; 1 if all are plain, else 2; which events these are; and the bodies.

    With 2, each body is followed by its envelope.
    """
    key = batch.keys[0].key if batch.keys else ""
    if batch.heads is None:
        return [key, 1, events, *batch.bodies]
    pairs = zip(batch.bodies, batch.heads, strict=True)
    return [key, 2, events, *(part for pair in pairs for part in pair)]


def pack_extras(batch: NewBatch) -> bytes:
    """`extra_of` by position, from 1; empty if there are none."""
    if batch.envelopes is None:
        return b""
    extras = {}
    for position, envelope in enumerate(batch.envelopes, 1):
        extra = extra_of(envelope)
        if extra is not None:
            extras[position] = extra
    return _pack(extras) if extras else b""


def extra_of(envelope: Envelope) -> tuple[int, int, str, int | str, str] | None:
    """Priority, due time, group, expiry and dedup key for scripts; None if it has none of them."""
    if not (
        envelope.priority
        or envelope.not_before_ns
        or envelope.group_key
        or envelope.expires_at_ns is not None
        or envelope.dedup_key
    ):
        return None
    return (
        envelope.priority,
        (envelope.not_before_ns or 0) // MICROSECONDS,
        envelope.group_key or "",
        "" if envelope.expires_at_ns is None else envelope.expires_at_ns // MICROSECONDS,
        envelope.dedup_key or "",
    )


def looks_at_ids(feeds: list[Feed]) -> bool:
    return any("id" in feed.filter.variables for feed in feeds)


def pack_matches(feeds: list[Feed], batch: NewBatch, id_of: Callable[[int], str]) -> bytes:
    """By feed, the runs of positions that match, and how many errors there were."""
    if not feeds:
        return b""
    found: dict[str, list[int]] = {}
    errors: dict[str, int] = {}
    by_filter: dict[str, list[Feed]] = {}
    for feed in feeds:
        by_filter.setdefault(feed.filter.source, []).append(feed)
    envelopes = batch.envelopes or [PLAIN] * len(batch.bodies)
    for at, (body, envelope) in enumerate(zip(batch.bodies, envelopes, strict=True)):
        subject = _subject(body, envelope, id_of, at)
        for source, (first, *_) in by_filter.items():
            match = first.filter.matches(subject)
            if match is Match.YES:
                found.setdefault(source, []).append(at + 1)
            elif match is Match.ERROR:
                errors[source] = errors.get(source, 0) + 1
    answer: dict[str, Any] = {}
    for source, same in by_filter.items():
        if source in found or source in errors:
            runs = [bound for run in runs_of(found.get(source, [])) for bound in run]
            for feed in same:
                answer[feed.key] = (runs, errors.get(source, 0))
    return _pack(answer) if answer else b""


def _subject(body: bytes, envelope: Envelope, id_of: Callable[[int], str], at: int) -> Subject:
    return Subject(
        body=body,
        attributes=envelope.attributes,
        topic=envelope.topic,
        priority=envelope.priority,
        id=lambda: id_of(at),
    )


def matches(feed: Feed, message: Message) -> bool:
    """Whether a filter matches an existing message."""
    subject = _subject(message.body, message.envelope, lambda at: message.id, 0)
    return feed.filter.matches(subject) is Match.YES
