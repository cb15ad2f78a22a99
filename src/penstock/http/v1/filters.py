"""Filters: try one before a subscription is created with it."""

from __future__ import annotations

from http import HTTPStatus

import msgspec
from blacksheep import Response

from penstock.broker import Broker
from penstock.core.filter_test import FilterTest
from penstock.errors import InvalidFilter
from penstock.http.exchange import IncomingRequest
from penstock.http.gate import Route, answer
from penstock.http.openapi.operation import Operation, form, gives
from penstock.http.v1.fields import Count
from penstock.http.v1.parameters import QUEUE_ERRORS, QUEUE_PATH
from penstock.http.v1.requests import path_value, read_form

__all__ = ["Filters"]


class FilterTestJson(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A filter to be tried on the newest messages."""

    filter: str
    last: Count = 100


_filter_test = msgspec.json.Decoder(FilterTestJson)


class Filters:
    """One handler per call."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def routes(self) -> list[Route]:
        return [Route("POST", "/v1/queues/{queue}/filter:test", self.test, operation=_TEST)]

    async def test(self, request: IncomingRequest) -> Response:
        asked = await read_form(request, _filter_test)
        found = await self._broker.test_filter(
            path_value(request, "queue"), asked.filter, asked.last
        )
        return answer(HTTPStatus.OK, found)


_TEST = Operation(
    "Try a filter on the newest messages",
    "subscriptions",
    gives(FilterTest, "Indexes that match, and those that the filter fails for."),
    parameters=QUEUE_PATH,
    body=form(FilterTestJson),
    errors=(*QUEUE_ERRORS, InvalidFilter),
    about="Nobody's progress is touched.",
)
