"""Dead letters of a queue: list, replay, discard."""

from __future__ import annotations

from http import HTTPStatus

import msgspec
from blacksheep import Response

from penstock.broker import Broker
from penstock.core.message import Message
from penstock.http.array import PART
from penstock.http.auth.user import Role
from penstock.http.exchange import IncomingRequest
from penstock.http.gate import Route, answer
from penstock.http.openapi.operation import Operation, form, gives
from penstock.http.v1.fields import MAX_ANSWER_BYTES, MAX_NUMBER, MAX_PAGE, Targets
from penstock.http.v1.message_forms import MessagePage, message_json
from penstock.http.v1.parameters import LIMIT, QUEUE_ERRORS, QUEUE_PATH, START
from penstock.http.v1.requests import path_value, query_number, read_form

__all__ = ["DeadLetters"]

_TAG = "dead letters"


class LettersJson(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Ids of the messages that failed; null or absent means all of them."""

    ids: Targets | None = None


class Replayed(msgspec.Struct, kw_only=True):
    replayed: int


class Discarded(msgspec.Struct, kw_only=True):
    discarded: int


_letters = msgspec.json.Decoder(LettersJson)


class DeadLetters:
    """One handler per call."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def routes(self) -> list[Route]:
        every = "/v1/queues/{queue}/dead-letters"
        admin = Role.ADMIN
        return [
            Route("GET", every, self.list, admin, operation=_LIST),
            Route("POST", f"{every}/replay", self.replay, admin, operation=_REPLAY),
            Route("POST", f"{every}/discard", self.discard, admin, operation=_DISCARD),
        ]

    async def list(self, request: IncomingRequest) -> Response:
        queue = path_value(request, "queue")
        at = query_number(request, "start", 0, low=0, high=MAX_NUMBER)
        limit = query_number(request, "limit", 100, low=1, high=MAX_PAGE)
        letters: list[Message] = []
        size = 0
        is_more = True
        while is_more and len(letters) < limit and size < MAX_ANSWER_BYTES:
            # One more than is needed says whether there is another page.
            count = min(PART, limit - len(letters))
            chunk = await self._broker.dead_letters(queue, at, count + 1)
            is_more = len(chunk) > count
            letters += chunk[:count]
            size += sum(len(letter.body) for letter in chunk)
            at = letters[-1].index + 1 if letters else at
        forms = [message_json(letter) for letter in letters]
        return answer(HTTPStatus.OK, MessagePage(messages=forms, next=at if is_more else None))

    async def replay(self, request: IncomingRequest) -> Response:
        ids = (await read_form(request, _letters)).ids
        count = await self._broker.replay(path_value(request, "queue"), ids)
        return answer(HTTPStatus.OK, Replayed(replayed=count))

    async def discard(self, request: IncomingRequest) -> Response:
        ids = (await read_form(request, _letters)).ids
        count = await self._broker.discard(path_value(request, "queue"), ids)
        return answer(HTTPStatus.OK, Discarded(discarded=count))


_LIST = Operation(
    "List messages that failed for good",
    _TAG,
    gives(MessagePage, "One page, each with its `dead_letter`. It ends early at 16 MiB."),
    parameters=(*QUEUE_PATH, START, LIMIT),
    errors=QUEUE_ERRORS,
)
_REPLAY = Operation(
    "Give dead letters back to the subscriptions they failed on",
    _TAG,
    gives(Replayed, "How many."),
    parameters=QUEUE_PATH,
    body=form(LettersJson, required=False),
    errors=QUEUE_ERRORS,
)
_DISCARD = Operation(
    "Remove dead letters for good",
    _TAG,
    gives(Discarded, "How many."),
    parameters=QUEUE_PATH,
    body=form(LettersJson, required=False),
    errors=QUEUE_ERRORS,
)
