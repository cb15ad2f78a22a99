"""What a server knows of a queue: its settings and subscriptions, at one version.

A server caches what it has learned, and passes the version with every step. A script refuses a step
whose version is not the queue's, so that no decision is ever based on outdated definitions; the
server then reads them again and retries.

A change of a subscription is such a step, too. So a server that has made one knows what has come of
it, and need not read the definitions of all the others again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from penstock.core.config import QueueConfig, SubscriptionConfig
from penstock.core.filters import Filter, compile_filter
from penstock.errors import SubscriptionNotFound

__all__ = [
    "Feed",
    "QueueDefinition",
    "ReaderDefinition",
    "as_stored",
    "config_text",
    "microseconds",
    "parse_definition",
    "queue_fields",
    "reader_fields",
]

_to_json = msgspec.json.Encoder().encode
_queue_config = msgspec.json.Decoder(QueueConfig).decode
_secrets = msgspec.json.Decoder(tuple[str, ...]).decode
_reader_config = msgspec.json.Decoder(SubscriptionConfig).decode

Field = str | int


@dataclass(frozen=True, kw_only=True, slots=True)
class Feed:
    """A filter that publishers apply. Its key is a subscription, or ``+id`` of a reserved one."""

    key: str
    filter: Filter


@dataclass(frozen=True, kw_only=True, slots=True)
class ReaderDefinition:
    """A subscription. The matches of its filter are known from index `since` on."""

    name: str
    id: int
    config: SubscriptionConfig
    since: int
    secrets: tuple[str, ...] = field(repr=False)

    def without_parent(self, name: str) -> ReaderDefinition:
        after = tuple(parent for parent in self.config.after if parent != name)
        return replace(self, config=msgspec.structs.replace(self.config, after=after))


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueDefinition:
    """A queue. `message_salt` is the salt in the ids of its messages.

    `source` is the queue whose dead letters it holds, `observed` the one whose events.
    """

    name: str
    key: str
    version: str
    id: int
    salt: int
    message_salt: int
    source: str | None
    observed: str | None
    config: QueueConfig
    readers: dict[str, ReaderDefinition]
    feeds: list[Feed]

    def reader(self, name: str) -> ReaderDefinition:
        """Raises `SubscriptionNotFound`."""
        found = self.readers.get(name)
        if found is None:
            raise SubscriptionNotFound(
                f"queue {self.name!r} has no subscription {name!r}; "
                f"it has: {', '.join(sorted(self.readers)) or 'none'}"
            )
        return found

    @property
    def next_version(self) -> str:
        number = int(self.version.partition(".")[2])
        return f"{self.id}.{number + 1}"

    def with_reader(self, reader: ReaderDefinition) -> QueueDefinition:
        """The next version, in which a subscription is altered, or new and without a filter."""
        readers = {**self.readers, reader.name: reader}
        return replace(self, version=self.next_version, readers=readers)

    def without_reader(self, name: str) -> QueueDefinition:
        """The next version, in which a subscription is gone, and nobody waits for it."""
        readers = {
            other.name: other.without_parent(name) if name in other.config.after else other
            for other in self.readers.values()
            if other.name != name
        }
        feeds = [feed for feed in self.feeds if feed.key != name]
        return replace(self, version=self.next_version, readers=readers, feeds=feeds)

    def graph(self) -> dict[str, tuple[str, ...]]:
        """Which subscription waits for which."""
        return {reader.name: reader.config.after for reader in self.readers.values()}


def parse_definition(name: str, key: str, answer: list[Any]) -> QueueDefinition:
    """Parse the answer of `describe.lua`."""
    version, id, salt, source, source_salt, config, pending, observed, found = answer
    readers = [
        ReaderDefinition(
            name=reader.decode(),
            id=int(reader_id),
            config=_reader_config(reader_config),
            since=int(since or 0),
            secrets=_secrets(secrets),
        )
        for reader, reader_id, reader_config, since, secrets in found
    ]
    texts = [(reader.name, reader.config.filter) for reader in readers]
    if pending:
        texts += [(f"+{feed}", text) for feed, text, _ in msgspec.json.decode(pending)]
    compiled: dict[str, Filter] = {}
    feeds = []
    for feed, text in texts:
        if text is not None:
            if text not in compiled:
                compiled[text] = compile_filter(text)
            feeds.append(Feed(key=feed, filter=compiled[text]))
    return QueueDefinition(
        name=name,
        key=key,
        version=version.decode(),
        id=int(id),
        salt=int(salt),
        message_salt=int(source_salt or salt),
        source=source.decode() if source else None,
        observed=observed.decode() if observed else None,
        config=_queue_config(config),
        readers={reader.name: reader for reader in readers},
        feeds=feeds,
    )


def as_stored(config: SubscriptionConfig) -> SubscriptionConfig:
    """As it is read back: a caller may have passed lists for tuples."""
    return _reader_config(_to_json(config))


def config_text(config: QueueConfig | SubscriptionConfig) -> str:
    return _to_json(config).decode()


def microseconds(seconds: float) -> int:
    return round(seconds * 1_000_000)


def _optional_time(seconds: float | None) -> Field:
    return "" if seconds is None else microseconds(seconds)


def _optional(value: int | None) -> Field:
    # A script reads what does not fit into a double as the nearest one, beyond any real count.
    return "" if value is None else value


def _flag(value: bool) -> Field:
    return "1" if value else ""


def queue_fields(config: QueueConfig) -> list[Field]:
    """Names and values, alternating: the settings as scripts read them, and as JSON."""
    # Queues with events take the slow path, as those with expiring messages do: the fast path
    # records no events.
    long_way: list[Field] = ["expires", "1"] if config.events else []
    return [
        *long_way,
        *("config", config_text(config)),
        *("fifo", _flag(config.fifo)),
        *("events", _flag(config.events)),
        *("max_messages", _optional(config.max_messages)),
        *("max_bytes", _optional(config.max_bytes)),
        *("retention", _optional_time(config.retention_seconds)),
        *("retention_messages", _optional(config.retention_messages)),
        *("retention_bytes", _optional(config.retention_bytes)),
        *("retain", _flag(config.retain_unsettled)),
        *("ttl", _optional_time(config.message_ttl_seconds)),
        *("dedup", microseconds(config.dedup_window_seconds)),
    ]


def reader_fields(config: SubscriptionConfig, secrets: Sequence[str] = ()) -> list[Field]:
    backoff = config.backoff
    is_growing = backoff.kind == "exponential"
    return [
        *("config", config_text(config)),
        *("filter", _flag(config.filter is not None)),
        *("parents", " ".join(config.after)),
        *("on_dead", config.on_dead_parent),
        *("lease", _optional_time(config.lease_seconds)),
        *("max_in_flight", config.max_in_flight),
        *("max_deliveries", _optional(config.max_deliveries)),
        *("paused", _flag(config.paused)),
        *("ordered", _flag(config.is_ordered)),
        *("backoff_base", microseconds(backoff.base_seconds)),
        *("backoff_factor", repr(float(backoff.factor)) if is_growing else ""),
        *("backoff_max", microseconds(backoff.max_seconds)),
        *("jitter", repr(float(backoff.jitter))),
        *("secrets", msgspec.json.encode(secrets).decode()),
    ]
