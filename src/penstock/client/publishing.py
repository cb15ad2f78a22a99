"""Publishing: concurrent calls share a request, and every request is safe to send twice."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import cast

import msgspec

from penstock.client.arguments import listed
from penstock.client.coalescer import Coalescer, Limits
from penstock.client.codec import MSGPACK, decode_msgpack
from penstock.client.errors import ServerFailed
from penstock.client.message import Published, PublishedRun
from penstock.client.paths import queue_path
from penstock.client.transport import Transport
from penstock.core.limits import MAX_BATCH_MESSAGES, MAX_BODY_BYTES, MAX_KEY_CHARACTERS
from penstock.core.message import (
    DEFAULT_CONTENT_TYPE,
    PLAIN,
    NewMessage,
    PublishedMessage,
    check_body,
    encode_envelope,
)
from penstock.errors import BatchTooLarge, InvalidArgument

__all__ = ["Publisher", "pack_message"]

_BATCH = "application/vnd.penstock.batch+msgpack"


class _Packed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message that has more than a body."""

    body: bytes
    content_type: str = DEFAULT_CONTENT_TYPE
    attributes: Mapping[str, str] = {}
    topic: str | None = None
    priority: int = 0
    not_before: datetime | None = None
    expires_at: datetime | None = None
    group_key: str | None = None
    dedup_key: str | None = None


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    """`messages`, or a run of `count` of them."""

    durability: str
    count: int = 0
    index: int = 0
    id: str = ""
    messages: list[PublishedMessage] | None = None

    def published(self) -> Published:
        if self.messages is not None:
            return Published(self.messages, self.durability)
        try:
            run = PublishedRun.starting_at(self.index, self.id, self.count)
        except InvalidArgument as exc:
            raise ServerFailed(f"the server's answer makes no sense: {exc}") from exc
        return Published(run, self.durability)


_Item = bytes | _Packed
_encoder = msgspec.msgpack.Encoder()


def pack_message(message: NewMessage | bytes) -> _Item:
    """A message in the batch format: the bare body, if it has nothing else.

    Raises `InvalidArgument` or `MessageTooLarge`, so that a bad message never gets into a request
    with the messages of others.
    """
    if isinstance(message, bytes):
        if len(message) > MAX_BODY_BYTES:
            check_body(message)
        return message
    if not isinstance(message, NewMessage):
        raise InvalidArgument(f"a message is {type(message).__name__}: pass bytes or a NewMessage")
    check_body(message.body)
    envelope = message.envelope()
    if envelope is PLAIN:
        return message.body
    encode_envelope(envelope)
    return _Packed(
        body=message.body,
        content_type=envelope.content_type,
        attributes=envelope.attributes,
        topic=envelope.topic,
        priority=envelope.priority,
        not_before=message.not_before,
        expires_at=message.expires_at,
        group_key=envelope.group_key,
        dedup_key=envelope.dedup_key,
    )


class Publisher:
    """Publishes to one queue. ``next_key`` makes a request's idempotency key; None is no key."""

    def __init__(
        self,
        transport: Transport,
        queue: str,
        *,
        next_key: Callable[[], str] | None,
        limits: Limits,
    ) -> None:
        self._transport = transport
        self._path = queue_path(queue, "/messages")
        self._next_key = next_key
        self._coalescer: Coalescer[_Item, PublishedMessage] = Coalescer(self._send, limits)

    def publish(
        self, messages: Sequence[NewMessage | bytes], idempotency_key: str | None
    ) -> Awaitable[Published]:
        """Raises `InvalidArgument`, `MessageTooLarge`, `BatchTooLarge`, or what the server says."""
        items, size = _pack(messages)
        if idempotency_key is not None:
            _check_key(idempotency_key)
            # The key is for this call alone, so it gets a request of its own.
            return self._request(items, idempotency_key)
        return cast(Awaitable[Published], self._coalescer.submit(items, size))

    async def close(self) -> None:
        await self._coalescer.close()

    async def _send(self, items: list[_Item]) -> Published:
        key = None if self._next_key is None else self._next_key()
        return _without_repeats(await self._request(items, key), items)

    async def _request(self, items: list[_Item], key: str | None) -> Published:
        data = await self._transport.request(
            "POST",
            self._path,
            body=_encoder.encode({"messages": items}),
            content_type=_BATCH,
            accept=MSGPACK,
            idempotency_key=key,
            is_repeatable=key is not None,
        )
        published = decode_msgpack(data, _Answer).published()
        if len(published) != len(items):
            raise ServerFailed(
                f"the server's answer makes no sense: {len(items)} messages were sent, "
                f"and {len(published)} are answered"
            )
        return published


def _pack(messages: Sequence[NewMessage | bytes]) -> tuple[list[_Item], int]:
    """The packed messages, and roughly how many bytes they have."""
    if type(messages) is list and len(messages) == 1 and type(body := messages[0]) is bytes:
        return [pack_message(body)], len(body)  # most calls are like this
    if type(messages) is not list:
        messages = _as_list(messages)
    if not messages:
        raise InvalidArgument("there are no messages in the batch: pass at least one")
    if len(messages) > MAX_BATCH_MESSAGES:
        raise BatchTooLarge(
            f"the batch has {len(messages)} messages, the limit is {MAX_BATCH_MESSAGES}: split it"
        )
    items: list[_Item] = []
    size = 0
    for message in messages:
        item = pack_message(message)
        items.append(item)
        size += len(item) if type(item) is bytes else len(_encoder.encode(item))
    return items, size


def _as_list(messages: Iterable[NewMessage | bytes]) -> list[NewMessage | bytes]:
    if isinstance(messages, bytes | bytearray | str | NewMessage):
        raise InvalidArgument("messages are a list: pass [body] for a single one")
    return listed("messages", messages, ())


def _without_repeats(published: Published, items: list[_Item]) -> Published:
    """Under a key of our own, a duplicate is just an earlier attempt of this same call."""
    if published.is_run:
        return published
    found = [
        one if not one.duplicate or _has_key(item) else PublishedMessage(one.index, one.id)
        for one, item in zip(published, items, strict=True)
    ]
    return Published(found, published.durability)


def _has_key(item: _Item) -> bool:
    return isinstance(item, _Packed) and item.dedup_key is not None


def _check_key(key: str) -> None:
    if not isinstance(key, str):
        raise InvalidArgument(f"the idempotency key is {type(key).__name__}: pass a text")
    if not (0 < len(key) <= MAX_KEY_CHARACTERS and key.isprintable() and key == key.strip()):
        raise InvalidArgument(
            f"the idempotency key is {key[:80]!r}: use 1 to {MAX_KEY_CHARACTERS} printable "
            "characters, without spaces around them"
        )


def key_maker(prefix: str) -> Callable[[], str]:
    """Keys that are used once: a prefix that is the client's own, and a counter."""
    numbers = itertools.count()
    return lambda: f"{prefix}-{next(numbers)}"
