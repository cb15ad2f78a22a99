"""Limits of requests a second."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.broker import Broker
from penstock.storage.local import LocalShared
from penstock.storage.memory import MemoryStore
from penstock.storage.registry import open_store
from penstock.storage.shared import Limit
from tests.contract.clock import ManualClock
from tests.http.client import Answer, Client
from tests.http.in_process import application
from tests.http.server import running


def refused(answers: list[Answer]) -> list[Answer]:
    assert {answer.status for answer in answers} <= {200, 404, 429}
    return [answer for answer in answers if answer.status == 429]


def test_limits_may_be_set_by_lightqs_names(log: Path) -> None:
    # Given three pushes and two pops a second
    environment = {"RATE_LIMIT_PUSH_PER_SECOND": "3", "RATE_LIMIT_POP_PER_SECOND": "2"}
    with running("memory:", log, environment=environment) as server:
        user = server.client("user", "password")
        user.push("warm-up")
        # When many more come (in few windows, however slow the machine is)
        answers = [user.push("orders", X_Request_Id=str(number)) for number in range(40)]
        over = refused(answers)
        # Then most of them are refused, and told when to come again
        assert len(over) >= 20
        assert {answer.headers["retry-after"] for answer in over} == {"1"}
        for number, answer in enumerate(answers):
            assert answer.headers["x-request-id"] == str(number)
        assert over[0].json["error"] == "Too Many Requests"
        # And what was answered with success is all that is there
        admin = server.client("admin", "adminpassword")
        assert len(admin.view("orders").json) == 40 - len(over)
        # And pops have a limit of their own, which batches share
        pops = [user.pop("orders") for _ in range(10)]
        pops += [user.ask("GET", "/queue/batch/pop", consumerGroup="orders") for _ in range(10)]
        assert len(refused(pops)) >= 12


PUBLISHING = [
    ("/queue/push", b"x"),
    ("/queue/batch/push", b'["x"]'),
    ("/v1/queues/orders/messages", b"x"),
    ("/api/producers/publish", b'{"topic": "t", "content": 1}'),
]
CONSUMING = [
    ("GET", "/queue/pop", b""),
    ("GET", "/queue/batch/pop", b""),
    ("POST", "/v1/queues/orders/subscriptions/default/receive", b"{}"),
    ("POST", "/v1/queues/orders/subscriptions/default/poll", b'{"start": 0, "count": 1}'),
    ("POST", "/v1/queues/orders/subscriptions/default/again", b'{"index": 0}'),
]


async def test_every_way_to_publish_and_to_consume_counts() -> None:
    # Given as many of each as are allowed in a second that does not end
    clock = ManualClock()
    limits = {"push_per_second": len(PUBLISHING), "pop_per_second": len(CONSUMING)}
    async with (
        Broker(MemoryStore(clock=clock)) as broker,
        application(broker, clock, **limits) as app,
    ):
        await broker.create_queue("orders")
        for path, body in PUBLISHING:
            answer = await app.ask("POST", path, body, consumerGroup="orders")
            assert answer.status in (200, 201), path
        for method, path, body in CONSUMING:
            answer = await app.ask(method, path, body, consumerGroup="orders")
            assert answer.status in (200, 404, 409), path
        # Then each is refused, whichever way it goes
        for method, path, body in [*(("POST", *one) for one in PUBLISHING), *CONSUMING]:
            answer = await app.ask(method, path, body, consumerGroup="orders")
            assert (answer.status, answer.headers["retry-after"]) == (429, "1"), path
        # And acks never are
        answer = await app.ask("POST", "/queue/ack", query="id=a", consumerGroup="orders")
        assert answer.status == 404
        clock.advance(1)
        answer = await app.ask("POST", "/queue/push", b"x", consumerGroup="orders")
        assert answer.status == 200


def test_without_a_setting_nothing_is_limited(user: Client, group: str) -> None:
    assert refused([user.push(group) for _ in range(60)]) == []
    assert refused([user.pop(group) for _ in range(60)]) == []


async def test_a_window_is_a_second_and_then_a_new_one_begins() -> None:
    clock = ManualClock()
    shared = LocalShared(None, clock)
    limits = [Limit("user:1", 3), Limit("push", 2)]
    over = [await shared.over_limit(limits) for _ in range(4)]
    assert over == [None, None, limits[1], limits[0]]
    clock.advance(0.9)
    assert await shared.over_limit(limits[1:]) == limits[1]
    clock.advance(0.1)
    assert [await shared.over_limit(limits) for _ in range(3)] == [None, None, limits[1]]


@pytest.mark.parametrize("per_second", [0, -1])
async def test_zero_or_less_is_no_limit(per_second: int) -> None:
    async with (
        Broker(await open_store("memory:")) as broker,
        application(broker, push_per_second=per_second) as app,
    ):
        for _ in range(20):
            answer = await app.ask("POST", "/queue/push", b"x", consumerGroup="orders")
            assert answer.status == 200
