"""What a server says about itself, and how a client says who it is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web

import penstock
from penstock.client import AsyncClient, ServerFailed, Unreachable
from penstock.clock import SystemClock
from penstock.core.message import to_datetime
from penstock.errors import InvalidArgument


class Elsewhere:
    """A server that is not ours: it answers what it is told to."""

    def __init__(self) -> None:
        self.answers: dict[str, web.Response] = {}
        self.credentials: list[str | None] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.credentials.append(request.headers.get("Authorization"))
        return self.answers.get(request.path, web.json_response({"queues": []}))


@pytest.fixture
async def elsewhere() -> AsyncIterator[Elsewhere]:
    found = Elsewhere()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", found.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield found
    await runner.cleanup()


async def test_a_sound_server_says_so_with_its_version_and_time(client: AsyncClient) -> None:
    health = await client.health()

    assert health.is_up
    assert health.components["store"].durability == "memory"
    assert health.version == penstock.__version__
    assert health.round_trip_seconds > 0
    assert health.date is not None
    assert abs(to_datetime(SystemClock().now_ns()) - health.date) < timedelta(minutes=1)


async def test_nobody_needs_a_password_for_it(client: AsyncClient) -> None:
    async with AsyncClient(client.url) as stranger:
        assert (await stranger.health()).is_up


async def test_a_server_that_is_down_says_why(elsewhere: Elsewhere) -> None:
    body = {"status": "DOWN", "components": {"store": {"status": "DOWN", "problem": "no disk"}}}
    elsewhere.answers["/openapi.json"] = web.Response(status=404)
    elsewhere.answers["/actuator/health"] = web.json_response(
        body, status=503, headers={"Date": "Thu, 31 Jan 2030 12:00:00 GMT"}
    )

    async with AsyncClient(elsewhere.url) as client:
        health = await client.health()

    assert not health.is_up
    assert health.components["store"].problem == "no disk"
    assert health.version is None
    assert health.date == datetime(2030, 1, 31, 12, tzinfo=UTC)


async def test_a_date_that_is_none_is_left_out(elsewhere: Elsewhere) -> None:
    elsewhere.answers["/openapi.json"] = web.Response(status=404)
    elsewhere.answers["/actuator/health"] = web.json_response(
        {"status": "UP", "components": {}}, headers={"Date": "yesterday"}
    )

    async with AsyncClient(elsewhere.url) as client:
        assert (await client.health()).date is None


async def test_what_is_no_server_of_ours_is_told_as_that(elsewhere: Elsewhere) -> None:
    elsewhere.answers["/openapi.json"] = web.Response(status=404)
    elsewhere.answers["/actuator/health"] = web.Response(status=500, text="oops")

    async with AsyncClient(elsewhere.url) as client:
        with pytest.raises(ServerFailed, match="oops"):
            await client.health()


async def test_no_server_is_unreachable_at_once() -> None:
    async with AsyncClient("http://127.0.0.1:1") as client:
        with pytest.raises(Unreachable, match="no connection"):
            await client.health()


async def test_a_token_goes_as_a_bearers(elsewhere: Elsewhere) -> None:
    async with AsyncClient(elsewhere.url, token="abc.def") as client:
        await client.stats()

    assert elsewhere.credentials == ["Bearer abc.def"]


async def test_a_token_and_a_name_are_too_much_and_a_broken_token_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="not both"):
        AsyncClient(username="user", password="password", token="abc")
    with pytest.raises(InvalidArgument, match="token"):
        AsyncClient(token="abc\r\nX-Evil: 1")
