"""The handlers of ``/queue/*``, one per path."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from http import HTTPStatus

from blacksheep import Response

from penstock.broker import Broker
from penstock.core.config import SubscriptionConfig
from penstock.core.limits import DEAD_LETTER_SUFFIX, MAX_BODY_BYTES
from penstock.core.message import NewMessage, ViewedMessage, parse_message_id
from penstock.core.publishing import NewBatch, PublishResult
from penstock.core.settling import Outcome
from penstock.errors import (
    InvalidArgument,
    MessageNotFound,
    MessageTooLarge,
    QueueExists,
    QueueNotFound,
)
from penstock.http.array import array_answer, in_parts
from penstock.http.auth.user import Role
from penstock.http.body import read_body
from penstock.http.exchange import IncomingRequest
from penstock.http.gate import Route, answer
from penstock.http.lightq import operations
from penstock.http.lightq.forms import (
    StoredForm,
    check_content,
    content_of,
    decode_texts,
    group_of,
    id_of,
    letter_form,
    message_count,
    new_message,
    plain_batch,
    pushed_form,
    query_number,
    stored_form,
    viewed_form,
)
from penstock.settings import Settings

__all__ = ["LightQ"]

_OK = HTTPStatus.OK
_BATCH_BYTES = 16 * MAX_BODY_BYTES


class LightQ:
    """One handler per path."""

    def __init__(self, broker: Broker, settings: Settings) -> None:
        self._broker = broker
        self._settings = settings
        # Groups whose dead letters already have the lifetime of the setting, if there is one.
        self._limited: set[str] = set()
        self._limits_letters = settings.dead_letter_minutes is not None

    def routes(self) -> list[Route]:
        admin = Role.ADMIN
        about = operations
        return [
            Route("POST", "/queue/push", self.push, limit="push", operation=about.PUSH),
            Route("GET", "/queue/pop", self.pop, limit="pop", operation=about.POP),
            Route("POST", "/queue/ack", self.ack, operation=about.ACK),
            Route("POST", "/queue/nack", self.nack, operation=about.NACK),
            Route("POST", "/queue/extend-visibility", self.extend, operation=about.EXTEND),
            Route("GET", "/queue/view", self.view, admin, operation=about.VIEW),
            Route("GET", "/queue/dlq/view", self.dlq_view, admin, operation=about.DLQ_VIEW),
            Route("POST", "/queue/dlq/replay", self.dlq_replay, admin, operation=about.DLQ_REPLAY),
            Route(
                "POST",
                "/queue/batch/push",
                self.batch_push,
                limit="push",
                operation=about.BATCH_PUSH,
            ),
            Route(
                "GET", "/queue/batch/pop", self.batch_pop, limit="pop", operation=about.BATCH_POP
            ),
            Route("POST", "/queue/batch/ack", self.batch_ack, operation=about.BATCH_ACK),
        ]

    async def push(self, request: IncomingRequest) -> Response:
        group = group_of(request)
        body = await read_body(request, MAX_BODY_BYTES, MessageTooLarge)
        content = content_of(body)
        priority, scheduled = request.first.get(b"priority"), request.first.get(b"scheduledat")
        if priority is None and scheduled is None:
            published = (await self._publish(group, plain_batch(request, body)))[0]
            return answer(_OK, pushed_form(published, content, 0))
        message = new_message(request, body)
        published = (await self._publish(group, [message]))[0]
        return answer(_OK, pushed_form(published, content, message.priority))

    async def batch_push(self, request: IncomingRequest) -> Response:
        group = group_of(request)
        contents = decode_texts(await read_body(request, _BATCH_BYTES))
        if not contents:
            raise InvalidArgument("the array is empty: send at least one content")
        messages = [new_message(request, check_content(content).encode()) for content in contents]
        published = await self._publish(group, messages)
        return answer(
            _OK,
            [
                pushed_form(one, content, message.priority)
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
                # LightQ's TTL counts whether or not a message was consumed.
                message_ttl_seconds=settings.retention_minutes * 60,
                # With the queue: a pop may come as soon as that is there.
                default=SubscriptionConfig(
                    lease_seconds=settings.visibility_timeout_seconds,
                    max_deliveries=settings.max_deliveries,
                ),
            )
        except QueueExists:
            return  # another push was faster
        await self._limit_letters(group)

    async def pop(self, request: IncomingRequest) -> Response:
        messages = await self._pop(group_of(request), 1)
        if not messages:
            raise MessageNotFound("no message can be reserved now")
        return answer(_OK, messages[0])

    async def batch_pop(self, request: IncomingRequest) -> Response:
        count = query_number(request, "count", 10, low=1, high=operations.MAX_POP)
        return answer(_OK, await self._pop(group_of(request), count))

    async def _pop(self, group: str, count: int) -> list[StoredForm]:
        if self._limits_letters and group not in self._limited:
            # The group may be older than the setting.
            await self._limit_letters(group)
        try:
            most_bytes = _BATCH_BYTES if count > 1 else None
            deliveries = await self._broker.receive(group, limit=count, most_bytes=most_bytes)
        except QueueNotFound:
            return []
        return [stored_form(delivery) for delivery in deliveries]

    async def ack(self, request: IncomingRequest) -> Response:
        [outcome] = await self._ack(group_of(request), [id_of(request)])
        if outcome is Outcome.NOT_FOUND:
            raise MessageNotFound("the group holds no message of that id")
        return Response(_OK)

    async def batch_ack(self, request: IncomingRequest) -> Response:
        group = group_of(request)
        ids = decode_texts(await read_body(request, MAX_BODY_BYTES))
        outcomes = await self._ack(group, ids) if ids else []
        return answer(_OK, sum(outcome is not Outcome.NOT_FOUND for outcome in outcomes))

    async def _ack(self, group: str, ids: list[str]) -> list[Outcome]:
        # The broker takes receipts too, which this API does not have.
        known = [id for id in ids if parse_message_id(id) is not None]
        try:
            outcomes = iter(await self._broker.ack(group, known) if known else [])
        except QueueNotFound:
            return [Outcome.NOT_FOUND] * len(ids)
        is_known = set(known)
        return [next(outcomes) if id in is_known else Outcome.NOT_FOUND for id in ids]

    async def nack(self, request: IncomingRequest) -> Response:
        group, id = group_of(request), id_of(request)
        message = await self._broker.get(group, id)
        reason = request.parameter("reason") or ""
        [outcome] = await self._broker.nack(group, [message.id], delay_seconds=0, reason=reason)
        if outcome is Outcome.ALREADY_SETTLED:
            raise MessageNotFound("the message is consumed already")
        return Response(_OK)

    async def extend(self, request: IncomingRequest) -> Response:
        group, id = group_of(request), id_of(request)
        seconds = query_number(
            request, "seconds", None, low=1, high=operations.MAX_EXTENSION_SECONDS
        )
        message = await self._broker.get(group, id)
        [outcome] = await self._broker.extend(group, [message.id], seconds, further=True)
        if outcome is not Outcome.DONE:
            raise InvalidArgument("the message is not reserved now: there is nothing to extend")
        return Response(_OK)

    async def view(self, request: IncomingRequest) -> Response:
        group = group_of(request)
        count = message_count(request, self._settings.view_limit)
        consumed = {b"yes": True, b"no": False}.get(request.first.get(b"consumed") or b"")

        async def read(start: int, limit: int) -> list[ViewedMessage]:
            return await self._broker.view(group, settled=consumed, start=start, limit=limit)

        parts = in_parts(read, count)
        try:
            return await array_answer(
                [viewed_form(group, one) for one in part] async for part in parts
            )
        except QueueNotFound:
            return answer(_OK, [])

    async def dlq_view(self, request: IncomingRequest) -> Response:
        group = group_of(request)
        limit = query_number(request, "limit", 50, low=1, high=operations.MAX_DLQ_VIEW)
        await self._limit_letters(group)
        parts = in_parts(partial(self._broker.dead_letters, group), limit)
        try:
            return await array_answer(
                [letter_form(group, one) for one in part] async for part in parts
            )
        except QueueNotFound:
            return answer(_OK, [])

    async def dlq_replay(self, request: IncomingRequest) -> Response:
        group = group_of(request)
        ids = decode_texts(await read_body(request, MAX_BODY_BYTES))
        if not ids:
            raise InvalidArgument("the array is empty: send the ids to replay")
        try:
            return answer(_OK, await self._broker.replay(group, ids))
        except QueueNotFound:
            return answer(_OK, 0)

    async def _limit_letters(self, group: str) -> None:
        """Give its dead letters their lifetime, before there can be any."""
        minutes = self._settings.dead_letter_minutes
        if minutes is not None:
            with suppress(QueueNotFound):
                await self._broker.alter_queue(
                    group + DEAD_LETTER_SUFFIX, message_ttl_seconds=minutes * 60
                )
                self._limited.add(group)
