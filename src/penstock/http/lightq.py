"""``/queue/*``: the API of LightQ and of Simple Queue Service.

A consumer group is a queue, read through its default subscription. A push to a group that does not
exist makes it. Where the two documents differ, LightQ's stands.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from http import HTTPStatus

import msgspec
from blacksheep import Response

from penstock.broker import Broker
from penstock.core.config import DEFAULT_SUBSCRIPTION
from penstock.core.dead_letters import MAX_DELIVERIES_REASON
from penstock.core.limits import (
    DEAD_LETTER_SUFFIX,
    MAX_BODY_BYTES,
    MAX_PRIORITY,
    NANOSECONDS,
    check_name,
)
from penstock.core.message import (
    DEFAULT_CONTENT_TYPE,
    PLAIN,
    Envelope,
    Message,
    NewMessage,
    PublishedMessage,
    parse_message_id,
)
from penstock.core.publishing import NewBatch, PublishResult, prepare
from penstock.core.settling import Outcome
from penstock.errors import InvalidArgument, MessageNotFound, QueueExists, QueueNotFound
from penstock.http.auth import Role
from penstock.http.body import read_body
from penstock.http.exchange import IncomingRequest
from penstock.http.gate import Route, answer
from penstock.settings import Settings

__all__ = ["LightQ"]

_OK = HTTPStatus.OK
_OCTETS = DEFAULT_CONTENT_TYPE.encode()
_BATCH_LIMIT = 100
_BATCH_BYTES = 16 * MAX_BODY_BYTES


class LightQ:
    """Handlers, one a path."""

    def __init__(self, broker: Broker, settings: Settings) -> None:
        self._broker = broker
        self._settings = settings
        # Groups whose dead letters are known to live as long as the setting says, if it does.
        self._limited: set[str] = set()
        self._limits_letters = settings.dead_letter_minutes is not None

    def routes(self) -> list[Route]:
        return [
            Route("POST", "/queue/push", self.push, limit="push"),
            Route("GET", "/queue/pop", self.pop, limit="pop"),
            Route("POST", "/queue/ack", self.ack),
            Route("POST", "/queue/nack", self.nack),
            Route("POST", "/queue/extend-visibility", self.extend),
            Route("GET", "/queue/view", self.view, Role.ADMIN),
            Route("GET", "/queue/dlq/view", self.dlq_view, Role.ADMIN),
            Route("POST", "/queue/dlq/replay", self.dlq_replay, Role.ADMIN),
            Route("POST", "/queue/batch/push", self.batch_push, limit="push"),
            Route("GET", "/queue/batch/pop", self.batch_pop, limit="pop"),
            Route("POST", "/queue/batch/ack", self.batch_ack),
        ]

    async def push(self, request: IncomingRequest) -> Response:
        group = _group(request)
        body = await read_body(request, MAX_BODY_BYTES)
        content = _text(body)
        priority, scheduled = request.first.get(b"priority"), request.first.get(b"scheduledat")
        if priority is None and scheduled is None:
            published = (await self._publish(group, _plain_batch(request, body)))[0]
            return answer(_OK, _pushed(published, content, 0))
        message = _new_message(request, body)
        published = (await self._publish(group, [message]))[0]
        return answer(_OK, _pushed(published, content, message.priority))

    async def batch_push(self, request: IncomingRequest) -> Response:
        group = _group(request)
        contents = _json(await read_body(request, _BATCH_BYTES), list[str])
        if not contents:
            raise InvalidArgument("the array is empty: send at least one content")
        messages = [_new_message(request, _checked(content).encode()) for content in contents]
        published = await self._publish(group, messages)
        return answer(
            _OK,
            [
                _pushed(one, content, message.priority)
                for one, content, message in zip(published, contents, messages, strict=True)
            ],
        )

    async def _publish(self, group: str, messages: list[NewMessage] | NewBatch) -> PublishResult:
        try:
            return await self._broker.publish(group, messages)
        except QueueNotFound:
            await self._create(group)
            return await self._broker.publish(group, messages)

    async def _create(self, group: str) -> None:
        settings = self._settings
        try:
            await self._broker.create_queue(
                group,
                retention_seconds=settings.retention_minutes * 60,
                # As LightQ's TTL does, whether or not somebody has consumed it.
                message_ttl_seconds=settings.retention_minutes * 60,
            )
        except QueueExists:
            return  # somebody else was faster
        await self._broker.alter_subscription(
            group,
            DEFAULT_SUBSCRIPTION,
            lease_seconds=settings.visibility_timeout_seconds,
            max_deliveries=settings.max_deliveries,
        )
        await self._limit_letters(group)

    async def pop(self, request: IncomingRequest) -> Response:
        messages = await self._pop(_group(request), 1)
        if not messages:
            raise MessageNotFound("no message can be reserved now")
        return answer(_OK, messages[0])

    async def batch_pop(self, request: IncomingRequest) -> Response:
        count = _number(request, "count", 10, low=1, high=_BATCH_LIMIT)
        return answer(_OK, await self._pop(_group(request), count))

    async def _pop(self, group: str, count: int) -> list[_Stored]:
        if self._limits_letters and group not in self._limited:
            # It may have been there before the setting.
            await self._limit_letters(group)
        try:
            deliveries = await self._broker.receive(group, limit=count)
        except QueueNotFound:
            return []
        return [_stored(delivery) for delivery in deliveries]

    async def ack(self, request: IncomingRequest) -> Response:
        [outcome] = await self._ack(_group(request), [_id(request)])
        if outcome is Outcome.NOT_FOUND:
            raise MessageNotFound("the group holds no message of that id")
        return Response(_OK)

    async def batch_ack(self, request: IncomingRequest) -> Response:
        group = _group(request)
        ids = _json(await read_body(request, MAX_BODY_BYTES), list[str])
        outcomes = await self._ack(group, ids) if ids else []
        return answer(_OK, sum(outcome is not Outcome.NOT_FOUND for outcome in outcomes))

    async def _ack(self, group: str, ids: list[str]) -> list[Outcome]:
        # What is no id might be a receipt, which this API does not know.
        known = [id for id in ids if parse_message_id(id) is not None]
        try:
            outcomes = iter(await self._broker.ack(group, known) if known else [])
        except QueueNotFound:
            return [Outcome.NOT_FOUND] * len(ids)
        is_known = set(known)
        return [next(outcomes) if id in is_known else Outcome.NOT_FOUND for id in ids]

    async def nack(self, request: IncomingRequest) -> Response:
        group, id = _group(request), _id(request)
        message = await self._broker.get(group, id)
        reason = request.parameter("reason") or ""
        [outcome] = await self._broker.nack(group, [message.id], delay_seconds=0, reason=reason)
        if outcome is Outcome.ALREADY_SETTLED:
            raise MessageNotFound("the message is consumed already")
        return Response(_OK)

    async def extend(self, request: IncomingRequest) -> Response:
        group, id = _group(request), _id(request)
        seconds = _number(request, "seconds", None, low=1, high=43_200)
        message = await self._broker.get(group, id)
        [outcome] = await self._broker.extend(group, [message.id], seconds, further=True)
        if outcome is not Outcome.DONE:
            raise InvalidArgument("the message is not reserved now: there is nothing to extend")
        return Response(_OK)

    async def view(self, request: IncomingRequest) -> Response:
        group = _group(request)
        limit = self._settings.view_limit
        count = _count(request, limit)
        consumed = {b"yes": True, b"no": False}.get(request.first.get(b"consumed") or b"")
        try:
            viewed = await self._broker.view(group, settled=consumed, limit=count)
        except QueueNotFound:
            viewed = []
        return answer(
            _OK,
            [
                {
                    **msgspec.to_builtins(_stored(one.message)),
                    "consumerGroup": group,
                    "consumed": one.is_settled,
                    # Of what is settled only an archive keeps it.
                    "deliveryCount": one.deliveries or (None if one.is_settled else 0),
                    "reservedUntil": _moment(one.leased_until_ns),
                }
                for one in viewed
            ],
        )

    async def dlq_view(self, request: IncomingRequest) -> Response:
        group = _group(request)
        limit = _number(request, "limit", 50, low=1, high=1000)
        await self._limit_letters(group)
        try:
            letters = await self._broker.dead_letters(group, limit=limit)
        except QueueNotFound:
            letters = []
        return answer(_OK, [_letter(group, letter) for letter in letters])

    async def dlq_replay(self, request: IncomingRequest) -> Response:
        group = _group(request)
        ids = _json(await read_body(request, MAX_BODY_BYTES), list[str])
        if not ids:
            raise InvalidArgument("the array is empty: send the ids to replay")
        try:
            return answer(_OK, await self._broker.replay(group, ids))
        except QueueNotFound:
            return answer(_OK, 0)

    async def _limit_letters(self, group: str) -> None:
        """Before a message of the group can become one."""
        minutes = self._settings.dead_letter_minutes
        if minutes is not None:
            with suppress(QueueNotFound):
                await self._broker.alter_queue(
                    group + DEAD_LETTER_SUFFIX, message_ttl_seconds=minutes * 60
                )
                self._limited.add(group)


# Requests.


def _group(request: IncomingRequest) -> str:
    value = request.first.get(b"consumergroup")
    if value is None:
        raise InvalidArgument("the header consumerGroup is missing: name the group in it")
    return check_name(value.decode("latin-1"), "consumerGroup")


def _id(request: IncomingRequest) -> str:
    value = request.parameter("id")
    if not value:
        raise InvalidArgument("the parameter id is missing")
    return value


def _number(
    request: IncomingRequest, name: str, default: int | None, *, low: int, high: int
) -> int:
    value = request.parameter(name)
    if value is None:
        if default is None:
            raise InvalidArgument(f"the parameter {name} is missing")
        return default
    return _checked_number(name, value, low, high)


def _count(request: IncomingRequest, limit: int) -> int:
    value = request.first.get(b"messagecount")
    if value is None:
        return limit
    return _checked_number("messageCount", value.decode("latin-1"), 1, limit)


def _checked_number(name: str, value: str, low: int, high: int) -> int:
    if not (value.isascii() and value.isdigit() and len(value) < 10 and low <= int(value) <= high):
        raise InvalidArgument(f"{name} is {value[:40]!r}: use {low} to {high}")
    return int(value)


def _text(body: bytes) -> str:
    try:
        return _checked(body.decode())
    except UnicodeDecodeError:
        raise InvalidArgument("the content is not UTF-8") from None


def _checked(content: str) -> str:
    if not content.strip():
        raise InvalidArgument("the content is blank")
    return content


def _json(body: bytes, kind: type[list[str]]) -> list[str]:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise InvalidArgument(f"the body is not a JSON array of strings: {exc}") from None


def _plain_batch(request: IncomingRequest, body: bytes) -> NewBatch:
    """Of one message that has nothing but a content type, as nearly all do."""
    content_type = request.first.get(b"content-type") or _OCTETS
    envelope, head = _envelope_of(content_type)
    if not head:
        return NewBatch([body], None, None, len(body))
    return NewBatch([body], [envelope], [head], len(body) + len(head))


@lru_cache(maxsize=256)
def _envelope_of(content_type: bytes) -> tuple[Envelope, bytes]:
    batch = prepare([NewMessage(body=b"", content_type=content_type.decode("latin-1"))])
    return (batch.envelopes or [PLAIN])[0], (batch.heads or [b""])[0]


def _new_message(request: IncomingRequest, body: bytes) -> NewMessage:
    priority = request.first.get(b"priority")
    scheduled = request.first.get(b"scheduledat")
    content_type = request.first.get(b"content-type")
    return NewMessage(
        body=body,
        content_type=content_type.decode("latin-1") if content_type else DEFAULT_CONTENT_TYPE,
        priority=(
            0
            if priority is None
            else _checked_number("priority", priority.decode("latin-1"), 0, MAX_PRIORITY)
        ),
        not_before=None if scheduled is None else _time(scheduled.decode("latin-1")),
    )


def _time(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument(f"scheduledAt is {text[:40]!r}: use ISO 8601") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


# Answers. Times have no zone, as the documents show them; they are UTC.


def _moment(time_ns: int | None) -> str | None:
    if time_ns is None:
        return None
    second, nanoseconds = divmod(time_ns, NANOSECONDS)
    milliseconds = nanoseconds // 1_000_000
    return f"{_second(second)}.{milliseconds:03}" if milliseconds else _second(second)


@lru_cache
def _second(time: int) -> str:
    # Many messages share one.
    return datetime.fromtimestamp(time, UTC).replace(tzinfo=None).isoformat()


class _Stored(msgspec.Struct, rename="camel"):
    """A message, as push and pop answer it."""

    id: str
    content: str
    created_at: str | None
    priority: int


def _pushed(published: PublishedMessage, content: str, priority: int) -> _Stored:
    return _Stored(published.id, content, _moment(published.created_at_ns), priority)


def _stored(message: Message) -> _Stored:
    content = message.body.decode("utf-8", "replace")
    return _Stored(message.id, content, _moment(message.created_at_ns), message.priority)


def _letter(group: str, message: Message) -> dict[str, object]:
    letter = message.dead_letter
    assert letter is not None
    return {
        **msgspec.to_builtins(_stored(message)),
        "consumerGroup": group,
        "deliveryCount": letter.deliveries,
        "failedAt": _moment(letter.failed_at_ns),
        "dlqReason": MAX_DELIVERIES_REASON,
        "lastReason": letter.reason,
    }
