"""Messages as a client gets them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeVar, overload

import msgspec

from penstock.core.message import (
    DEFAULT_CONTENT_TYPE,
    PublishedMessage,
    message_id,
    parse_message_id,
)
from penstock.errors import InvalidArgument

__all__ = ["DeadLetter", "Delivery", "Message", "Published", "ViewedMessage"]


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """Why a message is in a dead-letter queue. `index` is its index in the queue it came from."""

    queue: str
    subscription: str
    index: int
    deliveries: int
    reason: str
    failed_at: datetime


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A message as the log keeps it. `text` is None when the body is not UTF-8.

    It holds what the server's answer says, and `body` is made of that when it is asked for. So it
    is no `penstock.Message`, but has the same attributes; so have the others here.
    """

    index: int
    id: str
    content_type: str = DEFAULT_CONTENT_TYPE
    created_at: datetime
    queue: str = ""
    text: str | None = msgspec.field(default=None, name="body")
    body_base64: bytes | None = None
    attributes: dict[str, str] = {}
    topic: str | None = None
    priority: int = 0
    group_key: str | None = None
    dedup_key: str | None = None
    not_before: datetime | None = None
    expires_at: datetime | None = None
    dead_letter: DeadLetter | None = None

    @property
    def body(self) -> bytes:
        """The bytes that were published."""
        return self.text.encode() if self.text is not None else self.body_base64 or b""

    def json(self) -> Any:
        """The body as a JSON value. Raises `msgspec.DecodeError` when it is not JSON."""
        return msgspec.json.decode(self.body if self.text is None else self.text)


class Delivery(Message, frozen=True, kw_only=True):
    """A message in flight. Settle it before `deadline`, or it is delivered again.

    `deliveries` includes this one. Without a deadline it is delivered again only on request.
    """

    receipt: str
    deliveries: int
    subscription: str = ""
    deadline: datetime | None = None


class ViewedMessage(Message, frozen=True, kw_only=True):
    """A message, and its state for a subscription. `leased_until` is None if it is not leased."""

    is_settled: bool
    deliveries: int
    leased_until: datetime | None = None


_Kind = TypeVar("_Kind", bound=Message)


def from_queue(messages: list[_Kind], queue: str, subscription: str = "") -> list[_Kind]:
    """Note where messages came from, which the answer does not repeat for each of them."""
    # They are frozen, but were decoded a moment ago, and nobody else has seen them yet.
    assign = msgspec.structs.force_setattr
    for message in messages:
        assign(message, "queue", queue)
        if subscription:
            assign(message, "subscription", subscription)
    return messages


class PublishedRun(Sequence[PublishedMessage]):
    """Messages with consecutive indexes. Their ids are made as they are looked at."""

    __slots__ = ("_created_ns", "_indexes", "_salt")

    def __init__(self, indexes: range, created_ns: int, salt: int) -> None:
        self._indexes = indexes
        self._created_ns = created_ns
        self._salt = salt

    @classmethod
    def starting_at(cls, index: int, id: str, count: int) -> PublishedRun:
        """Raises `InvalidArgument` when the id is not one of ours."""
        parsed = parse_message_id(id)
        if parsed is None or parsed.index != index:
            raise InvalidArgument(f"{id!r} is not the id of message {index}")
        return cls(range(index, index + count), parsed.created_ms * 1_000_000, parsed.salt)

    @overload
    def __getitem__(self, position: int) -> PublishedMessage: ...

    @overload
    def __getitem__(self, position: slice) -> PublishedRun: ...

    def __getitem__(self, position: int | slice) -> PublishedMessage | PublishedRun:
        if isinstance(position, slice):
            return PublishedRun(self._indexes[position], self._created_ns, self._salt)
        index = self._indexes[position]
        return PublishedMessage(index, message_id(self._created_ns, index, self._salt))

    def __len__(self) -> int:
        return len(self._indexes)


class Published(Sequence[PublishedMessage]):
    """One entry for each published message, in order, and the `durability` that was reached."""

    __slots__ = ("_messages", "_within", "durability")

    def __init__(
        self,
        messages: Sequence[PublishedMessage],
        durability: str,
        within: range | None = None,
    ) -> None:
        """Those of ``messages`` at the positions ``within``; None is all of them."""
        self._messages = messages
        self._within = range(len(messages)) if within is None else within
        self.durability = durability

    @overload
    def __getitem__(self, position: int) -> PublishedMessage: ...

    @overload
    def __getitem__(self, position: slice) -> Published: ...

    def __getitem__(self, position: int | slice) -> PublishedMessage | Published:
        if isinstance(position, slice):
            return Published(self._messages, self.durability, self._within[position])
        return self._messages[self._within[position]]

    def __len__(self) -> int:
        return len(self._within)

    @property
    def is_run(self) -> bool:
        """Whether all of them are new, with consecutive indexes."""
        return isinstance(self._messages, PublishedRun)

    def __repr__(self) -> str:
        return f"Published({list(self)!r}, durability={self.durability!r})"
