"""Deliveries: receive, poll, ask for one again, settle."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from typing import Annotated

import msgspec
from blacksheep import Response
from msgspec import Meta

from penstock.broker import Broker
from penstock.core.message import Delivery
from penstock.core.outcome import Outcome
from penstock.errors import InvalidReceipt, MessageNotFound, NotLeased
from penstock.http.exchange import IncomingRequest
from penstock.http.gate import Route, answer
from penstock.http.openapi.operation import JSON, Answer, Operation, form, gives
from penstock.http.v1.fields import MAX_ANSWER_BYTES, MAX_PAGE, Count, Index, Targets
from penstock.http.v1.message_forms import DeliveryJson, delivery_json
from penstock.http.v1.msgpack_forms import (
    MSGPACK,
    msgpack_answer,
    msgpack_deliveries,
    wants_msgpack,
)
from penstock.http.v1.parameters import SUBSCRIPTION_ERRORS, SUBSCRIPTION_PATH
from penstock.http.v1.presence import while_present
from penstock.http.v1.requests import path_names, read_form
from penstock.storage import base

__all__ = ["DeliveryCalls"]

_TAG = "delivery"
_MAX_WAIT_SECONDS = 20


class ReceiveJson(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    limit: Count = 10
    wait_seconds: Annotated[float, Meta(ge=0, le=_MAX_WAIT_SECONDS)] = 0
    lease_seconds: Annotated[float, Meta(gt=0, le=1e9)] | None = None


class PollJson(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    start: Index
    count: Count


class AgainJson(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    index: Index


class DeliveryList(msgspec.Struct, kw_only=True):
    deliveries: list[DeliveryJson]


class NackJson(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Without `delay_seconds` the subscription's backoff decides."""

    targets: Targets
    delay_seconds: Annotated[float, Meta(ge=0, le=1e9)] | None = None
    reason: str = ""


class ExtendJson(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The leases end `seconds` from now or, with `further`, that much later."""

    targets: Targets
    seconds: Annotated[float, Meta(gt=0, le=1e9)]
    further: bool = False


class SettleJson(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Targets are receipts or message ids. `ack_up_to` settles everything below that index.

    `give_back` is for deliveries that nobody has started on: they are ready again, and not counted.
    """

    ack: Targets = []
    nack: Annotated[list[NackJson], Meta(max_length=MAX_PAGE)] = []
    extend: Annotated[list[ExtendJson], Meta(max_length=MAX_PAGE)] = []
    give_back: Targets = []
    ack_up_to: Index | None = None


class SettledJson(msgspec.Struct, kw_only=True):
    """An outcome for each target, in order."""

    ack: Sequence[Outcome]
    nack: list[Sequence[Outcome]]
    extend: list[Sequence[Outcome]]
    give_back: Sequence[Outcome]
    acked_up_to: int


_receive = msgspec.json.Decoder(ReceiveJson)
_poll = msgspec.json.Decoder(PollJson)
_again = msgspec.json.Decoder(AgainJson)
_settle = msgspec.json.Decoder(SettleJson)


class DeliveryCalls:
    """One handler per call."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def routes(self) -> list[Route]:
        one = "/v1/queues/{queue}/subscriptions/{subscription}"
        return [
            Route("POST", f"{one}/receive", self.receive, limit="pop", operation=_RECEIVE),
            Route("POST", f"{one}/settle", self.settle, operation=_SETTLE),
            Route("POST", f"{one}/poll", self.poll, limit="pop", operation=_POLL),
            Route("POST", f"{one}/again", self.again, limit="pop", operation=_AGAIN),
        ]

    async def receive(self, request: IncomingRequest) -> Response:
        queue, name = path_names(request)
        asked = await read_form(request, _receive)
        receive = partial(
            self._broker.receive,
            queue,
            subscription=name,
            limit=asked.limit,
            lease_seconds=asked.lease_seconds,
            most_bytes=MAX_ANSWER_BYTES,
        )
        deliveries = await receive()
        if not deliveries and asked.wait_seconds > 0:
            deliveries = await while_present(
                request,
                receive(wait_seconds=asked.wait_seconds),
                [],
                lambda given: self._broker.give_back(queue, given, name),
            )
        if wants_msgpack(request):
            return msgpack_answer(HTTPStatus.OK, msgpack_deliveries(deliveries))
        return _deliveries(deliveries)

    async def poll(self, request: IncomingRequest) -> Response:
        asked = await read_form(request, _poll)
        deliveries = await self._broker.poll(
            *path_names(request), start=asked.start, count=asked.count, most_bytes=MAX_ANSWER_BYTES
        )
        return _deliveries(deliveries)

    async def again(self, request: IncomingRequest) -> Response:
        asked = await read_form(request, _again)
        delivery = await self._broker.ask_again(*path_names(request), asked.index)
        return answer(HTTPStatus.OK, delivery_json(delivery))

    async def settle(self, request: IncomingRequest) -> Response:
        queue, name = path_names(request)
        asked = await read_form(request, _settle)
        settlements: list[base.Settlement] = []
        settlements += [
            base.Nack(targets=one.targets, delay_seconds=one.delay_seconds, reason=one.reason)
            for one in asked.nack
        ]
        settlements += [
            base.Extend(targets=one.targets, seconds=one.seconds, further=one.further)
            for one in asked.extend
        ]
        if asked.give_back:
            settlements.append(base.GiveBack(targets=asked.give_back))
        if asked.ack_up_to is not None:
            settlements.append(base.AckUpTo(index=asked.ack_up_to))
        if asked.ack or not settlements:
            settlements.insert(0, base.Ack(targets=asked.ack))
        outcomes = iter(await self._broker.settle(queue, settlements, name))
        return answer(
            HTTPStatus.OK,
            SettledJson(
                ack=next(outcomes) if type(settlements[0]) is base.Ack else [],
                nack=[next(outcomes) for _ in asked.nack],
                extend=[next(outcomes) for _ in asked.extend],
                give_back=next(outcomes) if asked.give_back else [],
                acked_up_to=len(next(outcomes, ())),
            ),
        )


def _deliveries(deliveries: list[Delivery]) -> Response:
    return answer(HTTPStatus.OK, DeliveryList(deliveries=[delivery_json(d) for d in deliveries]))


_RECEIVE = Operation(
    "Lease the next messages",
    _TAG,
    (
        Answer(
            200,
            "What there is; empty if the time was up first.",
            {JSON: DeliveryList, MSGPACK: {"type": "string", "format": "binary"}},
        ),
    ),
    parameters=SUBSCRIPTION_PATH,
    body=form(ReceiveJson, required=False),
    errors=SUBSCRIPTION_ERRORS,
    about=(
        "By priority, then by index. With `wait_seconds` it waits that long for the first one. "
        "Settle each before its `deadline`, or it is delivered again."
    ),
)
_POLL = Operation(
    "Lease messages of an index range",
    _TAG,
    gives(DeliveryList, "What of the range can be given out now."),
    parameters=SUBSCRIPTION_PATH,
    body=form(PollJson),
    errors=SUBSCRIPTION_ERRORS,
    about=(
        "The range is cut off at the cursor below, and at `max_in_flight` above the lowest unacked "
        "index."
    ),
)
_AGAIN = Operation(
    "Have one unsettled message delivered once more",
    _TAG,
    gives(DeliveryJson, "The new delivery; the one before is void."),
    parameters=SUBSCRIPTION_PATH,
    body=form(AgainJson),
    errors=(*SUBSCRIPTION_ERRORS, MessageNotFound, NotLeased),
)
_SETTLE = Operation(
    "Ack, nack and extend many deliveries at once",
    _TAG,
    gives(SettledJson, "An outcome for each target."),
    parameters=SUBSCRIPTION_PATH,
    body=form(SettleJson),
    errors=(*SUBSCRIPTION_ERRORS, InvalidReceipt),
    about=(
        "A target is a receipt or a message id. Outcomes: `done`; `already_settled`; `not_leased`: "
        "another delivery was made, or the lease ended; `not_found`."
    ),
)
