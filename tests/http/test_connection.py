"""A connection by itself, without a server around it."""

from __future__ import annotations

import gc

import pytest

from penstock.broker import Broker
from penstock.errors import InvalidArgument
from penstock.http.app import create_app
from penstock.http.exchange import IncomingRequest
from penstock.settings import Settings
from penstock.storage.registry import open_store
from tests.http.client import basic
from tests.http.in_process import configured, connect

PUSH = (
    "POST /queue/push HTTP/1.1\r\nHost: a\r\nconsumerGroup: orders\r\n"
    f"Authorization: {basic('user', 'password')}\r\nContent-Length: 5\r\n\r\nhello"
).encode()


async def test_a_request_leaves_nothing_for_the_garbage_collector() -> None:
    # Given a connection on which there were some requests
    async with Broker(await open_store("memory:")) as broker:
        app = await create_app(broker, Settings(data="memory:"))
        await app.start()  # type: ignore[no-untyped-call]
        connection, wire = connect(configured(app))

        async def ask() -> None:
            connection.data_received(PUSH)
            await wire.more()
            assert wire.written.pop().startswith(b"HTTP/1.1 200 OK\r\n")

        for _ in range(10):
            await ask()
        gc.collect()
        gc.disable()

        # When there are more
        try:
            for _ in range(100):
                await ask()

            # Then reference counts have freed all of it
            assert gc.collect() < 100
        finally:
            gc.enable()


@pytest.mark.parametrize(
    ("query", "name", "value"),
    [
        (b"id=5", "id", "5"),
        (b"id=5&id=6", "id", "5"),
        (b"id=&id=6", "id", "6"),
        (b"id", "id", None),
        (b"", "id", None),
        (b"reason=a+b%20c%C3%A4", "reason", "a b cä"),
        (b"a=b=c", "a", "b=c"),
        ("reason=ä".encode(), "reason", "ä"),
    ],
)
def test_a_parameter_is_the_first_of_its_name_that_is_not_blank(
    query: bytes, name: str, value: str | None
) -> None:
    assert IncomingRequest("GET", b"/", query, []).parameter(name) == value


@pytest.mark.parametrize("query", [b"a=\xff", b"a=\xc3%a4"])
def test_a_query_that_is_no_text_is_refused(query: bytes) -> None:
    with pytest.raises(InvalidArgument, match="UTF-8"):
        IncomingRequest("GET", b"/", query, []).parameter("a")
