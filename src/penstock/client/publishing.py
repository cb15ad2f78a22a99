"""Publishing: messages of concurrent calls go in one request, each safe to be sent twice."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import msgspec

from penstock.client.coalescer import Coalescer, Limits
from penstock.client.message import Published
from penstock.client.paths import queue_path
from penstock.client.transport import Transport, decode_answer
from penstock.core.limits import MAX_BATCH_MESSAGES, MAX_KEY_CHARACTERS
from penstock.core.message import (
    DEFAULT_CONTENT_TYPE,
    NewMessage,
    PublishedMessage,
    check_body,
    encode_envelope,
)
from penstock.errors import BatchTooLarge, InvalidArgument

__all__ = ["Publisher", "encode_message"]

_BATCH = "application/vnd.penstock.batch+json"


class _Answer(msgspec.Struct, frozen=True):
    durability: str
    messages: list[PublishedMessage]


class _Stored(msgspec.Struct, frozen=True, gc=False):
    """What became of one message, and at which durability."""

    message: PublishedMessage
    durability: str


_encoder = msgspec.json.Encoder()


def encode_message(message: NewMessage | bytes) -> bytes:
    """As the batch format has it.

    Raises `InvalidArgument` or `MessageTooLarge`, so that one bad message never gets into a
    request with those of others.
    """
    if isinstance(message, NewMessage):
        body = message.body
    elif isinstance(message, bytes):
        body, message = message, _PLAIN
    else:
        raise InvalidArgument(f"a message is {type(message).__name__}: pass bytes or a NewMessage")
    check_body(body)
    fields: dict[str, object]
    try:
        fields = {"body": body.decode()}
    except UnicodeDecodeError:
        fields = {"body_base64": body}
    if message is not _PLAIN:
        encode_envelope(message.envelope())
        for name in _OPTIONAL:
            value = getattr(message, name)
            if value:
                fields[name] = value
        if message.content_type != DEFAULT_CONTENT_TYPE:
            fields["content_type"] = message.content_type
    return _encoder.encode(fields)


_PLAIN = NewMessage(body=b"")
_OPTIONAL = (
    "attributes",
    "topic",
    "priority",
    "not_before",
    "expires_at",
    "group_key",
    "dedup_key",
)


class Publisher:
    """The publishes of one queue. ``next_key`` makes the key of a request; None leaves it out."""

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
        self._coalescer: Coalescer[bytes, _Stored] = Coalescer(self._send, limits)

    async def publish(
        self, messages: Sequence[NewMessage | bytes], idempotency_key: str | None
    ) -> Published:
        """Raises `InvalidArgument`, `MessageTooLarge`, `BatchTooLarge`, or what the server says."""
        items = _encode(messages)
        if idempotency_key is not None:
            _check_key(idempotency_key)
            # It names this call alone, so it goes alone.
            sent = await self._request(items, idempotency_key)
            return Published([one.message for one in sent], sent[0].durability)
        stored = await self._coalescer.submit(items, sum(map(len, items)))
        # With a key of ours a duplicate is but an earlier attempt of this very call.
        found = [
            one.message if not one.message.duplicate or _has_key(message) else _first(one.message)
            for one, message in zip(stored, messages, strict=True)
        ]
        return Published(found, stored[0].durability)

    async def close(self) -> None:
        await self._coalescer.close()

    async def _send(self, items: list[bytes]) -> list[_Stored]:
        return await self._request(items, None if self._next_key is None else self._next_key())

    async def _request(self, items: list[bytes], key: str | None) -> list[_Stored]:
        body = b'{"messages":[' + b",".join(items) + b"]}"
        data = await self._transport.request(
            "POST",
            self._path,
            body=body,
            content_type=_BATCH,
            idempotency_key=key,
            is_repeatable=key is not None,
        )
        answer = decode_answer(data, _Answer)
        return [_Stored(message, answer.durability) for message in answer.messages]


def _encode(messages: Sequence[NewMessage | bytes]) -> list[bytes]:
    if isinstance(messages, bytes | str):
        raise InvalidArgument("messages are a list: pass [body] for a single one")
    if not messages:
        raise InvalidArgument("there are no messages in the batch: pass at least one")
    if len(messages) > MAX_BATCH_MESSAGES:
        raise BatchTooLarge(
            f"the batch has {len(messages)} messages, the limit is {MAX_BATCH_MESSAGES}: split it"
        )
    return [encode_message(message) for message in messages]


def _check_key(key: str) -> None:
    if not (0 < len(key) <= MAX_KEY_CHARACTERS and key.isprintable() and key == key.strip()):
        raise InvalidArgument(
            f"the idempotency key is {key[:80]!r}: use 1 to {MAX_KEY_CHARACTERS} printable "
            "characters, without spaces around them"
        )


def _has_key(message: NewMessage | bytes) -> bool:
    return isinstance(message, NewMessage) and bool(message.dedup_key)


def _first(answer: PublishedMessage) -> PublishedMessage:
    return PublishedMessage(answer.index, answer.id)


def key_maker(prefix: str) -> Callable[[], str]:
    """Keys that are used once: the prefix is the client's own, the rest counts."""
    numbers = itertools.count()
    return lambda: f"{prefix}-{next(numbers)}"
