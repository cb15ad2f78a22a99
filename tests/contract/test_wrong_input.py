"""Whatever a caller passes: it is refused with an error of ours, or it can be read back."""

from __future__ import annotations

import inspect
import math
import os
import shutil
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from penstock.broker import Broker
from penstock.core import events as ev
from penstock.core.callback import Callback
from penstock.core.config import QueueConfig, SubscriptionConfig
from penstock.core.message import Delivery, NewMessage
from penstock.core.retry import Backoff
from penstock.errors import (
    CorruptLog,
    InvalidArgument,
    InvalidName,
    NotLeased,
    PenstockError,
    QueueFull,
    StorageError,
    UnknownBackend,
)
from penstock.storage import base
from penstock.storage.registry import open_store
from penstock.storage.wal.files import DiskFiles
from penstock.storage.wal.segment import file_name, offset_of, segment_of
from penstock.storage.wal.store import WalStore
from tests.contract.clock import ManualClock
from tests.contract.world import QUEUE, World, bodies, indexes

NOT_NAMES: tuple[Any, ...] = (None, 5, 1.5, True, b"jobs", ["jobs"], {"jobs": 1}, "\ud800")
NOT_WHOLE: tuple[Any, ...] = (None, 1.5, 2.0, True, "1", b"1", [1], math.nan, math.inf)
NOT_SECONDS: tuple[Any, ...] = (
    "1",
    b"1",
    True,
    [1],
    -1,
    math.nan,
    math.inf,
    1j,
    timedelta(seconds=1),
    10**400,
)
NOT_TEXTS: tuple[Any, ...] = (5, 1.5, True, b"x", ["x"], {"x": 1}, "\ud800")
NOT_LISTS: tuple[Any, ...] = (5, 1.5, "abc", b"abc", bytearray(b"abc"), object())
NOT_TIMES: tuple[Any, ...] = (
    5,
    1.5,
    "2030-01-01",
    b"2030",
    [2030],
    datetime.max.replace(tzinfo=UTC),
)
NOT_STARTS: tuple[Any, ...] = (
    None,
    1.5,
    True,
    "soon",
    b"latest",
    [1],
    datetime.max.replace(tzinfo=UTC),
)
NOT_TARGETS: tuple[Any, ...] = (None, 5, 1.5, b"2.0.1", ["2.0.1"], "2.0", "\ud800", object())

Call = Callable[[Broker, list[Delivery]], Awaitable[object]]
WrongCalls = list[tuple[object, Call]]


def each_of_given(
    values: Iterable[Any], call: Callable[[Broker, list[Delivery], Any], Awaitable[object]]
) -> WrongCalls:
    """Calls that are about deliveries in flight."""

    def wrong(value: Any) -> Call:
        return lambda broker, given: call(broker, given, value)

    return [(value, wrong(value)) for value in values]


def each(values: Iterable[Any], call: Callable[[Broker, Any], Awaitable[object]]) -> WrongCalls:
    return each_of_given(values, lambda broker, given, value: call(broker, value))


def messages(field: str, values: Iterable[Any]) -> WrongCalls:
    wrong = [NewMessage(**{"body": b"x", field: value}) for value in values]
    return each(wrong, lambda broker, message: broker.publish(QUEUE, [message]))


def settings(
    values: dict[str, Iterable[Any]], call: Callable[[Broker, dict[str, Any]], Awaitable[object]]
) -> WrongCalls:
    return each([{name: v} for name, wrong in values.items() for v in wrong], call)


class Text(StrEnum):
    NAME = "http://a.example/"


URL = "http://a.example/hook"
NOT_URLS = (
    "",
    "a.example/hook",
    "ftp://a.example/",
    "file:///etc/passwd",
    "javascript:alert(1)",
    "http://",
    "http:///path",
    "http://a.example:0/",
    "http://a.example:99999/",
    "http://a.example:x/",
    "http://user:password@a.example/",
    "http://user@a.example/",
    "http://a.example/#part",
    "http://a.example/with space",
    "http://a.example/\r\nHost: b.example",
    "http://a.example\\@b.example/",
    "http://\u00e4.example/",
    "http://[::1/",
    f"http://a.example/{'x' * 2000}",
)
NOT_COUNTS: tuple[Any, ...] = ("1", True, 1.5, -1, 2**65, [1])
QUEUE_SETTINGS: dict[str, Iterable[Any]] = {
    "fifo": (None, 1, "yes"),
    "max_messages": NOT_COUNTS,
    "max_bytes": NOT_COUNTS,
    "retention_seconds": NOT_SECONDS,
    "retention_messages": NOT_COUNTS,
    "retention_bytes": NOT_COUNTS,
    "retain_unsettled": (None, 1, "yes"),
    "message_ttl_seconds": NOT_SECONDS,
    "dedup_window_seconds": (None, *NOT_SECONDS, 2**65),
    "unknown": (1,),
}
SUBSCRIPTION_SETTINGS: dict[str, Iterable[Any]] = {
    "filter": (5, b"true", ["true"], "\ud800", " "),
    "after": (None, 5, "default", b"default", [1], [None], {"default"}, ["none"], ["\ud800"]),
    "on_dead_parent": (None, 5, "drop", ["hold"]),
    "lease_seconds": NOT_SECONDS,
    "max_in_flight": (None, *NOT_COUNTS),
    "max_deliveries": NOT_COUNTS,
    "backoff": (None, 5, "fixed", {"kind": "fixed", "base_seconds": 1}, Backoff),
    "paused": (None, 1, "yes"),
    "callback": (
        5,
        "http://a.example/",
        {"url": "http://a.example/"},
        Callback,
        Callback(url=5),  # type: ignore[arg-type]
        Callback(url=Text.NAME),
        *(Callback(url=url) for url in NOT_URLS),
        *(Callback(url=URL, mode=v) for v in (None, 1, "push")),  # type: ignore[arg-type]
        *(Callback(url=URL, concurrency=v) for v in (None, 0, 1001, *NOT_COUNTS)),
        *(Callback(url=URL, connect_seconds=v) for v in (None, 0, 3601, *NOT_SECONDS)),
        *(Callback(url=URL, timeout_seconds=v) for v in (None, 0, 3601, *NOT_SECONDS)),
        *(Callback(url=URL, ordered=v) for v in (None, 1, "yes")),  # type: ignore[arg-type]
        *(Callback(url=URL, cloudevents=v) for v in (None, 1)),  # type: ignore[arg-type]
        Callback(url=URL, mode="notify", ordered=True),
    ),
    "unknown": (1,),
}

WRONG: dict[str, list[WrongCalls]] = {
    "create_queue": [
        each(NOT_NAMES, lambda b, v: b.create_queue(v)),
        each(
            (5, {"fifo": True}, SubscriptionConfig(), QueueConfig),
            lambda b, v: b.create_queue("new", v),
        ),
        settings(QUEUE_SETTINGS, lambda b, v: b.create_queue("new", **v)),
        settings(
            {name: wrong for name, wrong in QUEUE_SETTINGS.items() if name != "unknown"},
            lambda b, v: b.create_queue("new", QueueConfig(**v)),
        ),
    ],
    "ensure_queue": [
        each(NOT_NAMES, lambda b, v: b.ensure_queue(v)),
        each((5, {"fifo": True}, QueueConfig), lambda b, v: b.ensure_queue("new", v)),
        each((5, {"fifo": True}, QueueConfig), lambda b, v: b.ensure_queue(QUEUE, v)),
        settings(QUEUE_SETTINGS, lambda b, v: b.ensure_queue("new", **v)),
        settings(QUEUE_SETTINGS, lambda b, v: b.ensure_queue(QUEUE, **v)),
    ],
    "alter_queue": [
        each(NOT_NAMES, lambda b, v: b.alter_queue(v, max_messages=1)),
        settings(QUEUE_SETTINGS, lambda b, v: b.alter_queue(QUEUE, **v)),
    ],
    "delete_queue": [each(NOT_NAMES, lambda b, v: b.delete_queue(v))],
    "purge_queue": [each(NOT_NAMES, lambda b, v: b.purge_queue(v))],
    "queues": [
        each(NOT_TEXTS, lambda b, v: b.queues(after=v)),
        each((0, -1, *NOT_WHOLE), lambda b, v: b.queues(limit=v)),
    ],
    "queue_stats": [
        each(NOT_NAMES, lambda b, v: b.queue_stats(v)),
        each(NOT_NAMES, lambda b, v: b.queue_stats(QUEUE, only=[v])),
        each(NOT_LISTS, lambda b, v: b.queue_stats(QUEUE, only=v)),
    ],
    "create_subscription": [
        each(NOT_NAMES, lambda b, v: b.create_subscription(v, "new")),
        each(NOT_NAMES, lambda b, v: b.create_subscription(QUEUE, v)),
        each(
            (5, {"paused": True}, QueueConfig(), SubscriptionConfig),
            lambda b, v: b.create_subscription(QUEUE, "new", v),
        ),
        each(NOT_STARTS, lambda b, v: b.create_subscription(QUEUE, "new", start=v)),
        settings(SUBSCRIPTION_SETTINGS, lambda b, v: b.create_subscription(QUEUE, "new", **v)),
    ],
    "ensure_subscription": [
        each(NOT_NAMES, lambda b, v: b.ensure_subscription(v, "new")),
        each(NOT_NAMES, lambda b, v: b.ensure_subscription(QUEUE, v)),
        each(
            (5, {"paused": True}, QueueConfig(), SubscriptionConfig),
            lambda b, v: b.ensure_subscription(QUEUE, "new", v),
        ),
        each((5, {"paused": True}), lambda b, v: b.ensure_subscription(QUEUE, "default", v)),
        each(NOT_STARTS, lambda b, v: b.ensure_subscription(QUEUE, "new", start=v)),
        settings(SUBSCRIPTION_SETTINGS, lambda b, v: b.ensure_subscription(QUEUE, "new", **v)),
        settings(SUBSCRIPTION_SETTINGS, lambda b, v: b.ensure_subscription(QUEUE, "after", **v)),
    ],
    "subscriptions": [each(NOT_NAMES, lambda b, v: b.subscriptions(v))],
    "subscription_stats": [
        each(NOT_NAMES, lambda b, v: b.subscription_stats(v)),
        each(NOT_NAMES, lambda b, v: b.subscription_stats(QUEUE, v)),
    ],
    "alter_subscription": [
        each(NOT_NAMES, lambda b, v: b.alter_subscription(v, "after", paused=True)),
        each(NOT_NAMES, lambda b, v: b.alter_subscription(QUEUE, v, paused=True)),
        settings(SUBSCRIPTION_SETTINGS, lambda b, v: b.alter_subscription(QUEUE, "after", **v)),
    ],
    "held_messages": [
        each(NOT_NAMES, lambda b, v: b.held_messages(v, "after")),
        each(NOT_NAMES, lambda b, v: b.held_messages(QUEUE, v)),
        each(NOT_WHOLE, lambda b, v: b.held_messages(QUEUE, "after", v)),
    ],
    "graph": [each(NOT_NAMES, lambda b, v: b.graph(v))],
    # Without a name it is about all; one that no queue has is not an error.
    "callbacks": [each(NOT_NAMES[1:-1], lambda b, v: b.callbacks(v))],
    "test_filter": [
        each(NOT_NAMES, lambda b, v: b.test_filter(v, "true")),
        each((*NOT_TEXTS, "", "body.", "1"), lambda b, v: b.test_filter(QUEUE, v)),
        each((0, -1, *NOT_WHOLE), lambda b, v: b.test_filter(QUEUE, "true", v)),
    ],
    "rotate_secret": [
        each(NOT_NAMES, lambda b, v: b.rotate_secret(v, "default")),
        each(("default", *NOT_NAMES), lambda b, v: b.rotate_secret(QUEUE, v)),
    ],
    "wait": [
        each(NOT_NAMES, lambda b, v: b.wait(v, "default", 1)),
        each(NOT_NAMES, lambda b, v: b.wait(QUEUE, v, 1)),
        each((None, 0, *NOT_SECONDS), lambda b, v: b.wait(QUEUE, "default", v)),
        each(NOT_WHOLE[1:], lambda b, v: b.wait(QUEUE, "default", 1, beyond=v)),
    ],
    "pause": [
        each(NOT_NAMES, lambda b, v: b.pause(v)),
        each(NOT_NAMES, lambda b, v: b.pause(QUEUE, v)),
    ],
    "resume": [
        each(NOT_NAMES, lambda b, v: b.resume(v)),
        each(NOT_NAMES, lambda b, v: b.resume(QUEUE, v)),
    ],
    "delete_subscription": [
        each(NOT_NAMES, lambda b, v: b.delete_subscription(v, "after")),
        each(NOT_NAMES, lambda b, v: b.delete_subscription(QUEUE, v)),
    ],
    "seek": [
        each(NOT_NAMES, lambda b, v: b.seek(v, 0)),
        each(NOT_NAMES, lambda b, v: b.seek(QUEUE, 0, v)),
        each(NOT_STARTS, lambda b, v: b.seek(QUEUE, v)),
    ],
    "publish": [
        each(NOT_NAMES, lambda b, v: b.publish(v, [b"x"])),
        each((None, *NOT_LISTS, NewMessage(body=b"x")), lambda b, v: b.publish(QUEUE, v)),
        each((None, 5, "x", bytearray(b"x"), [b"x"]), lambda b, v: b.publish(QUEUE, [b"ok", v])),
        messages("body", (None, 5, "x", bytearray(b"x"), [b"x"])),
        messages("content_type", (None, *NOT_TEXTS)),
        messages("attributes", (None, 5, "a", [], [("a", "b")], {"a": 1}, {1: "a"}, {"a": None})),
        messages("attributes", ({"\ud800": "a"}, {"a": "\ud800"})),
        messages("topic", NOT_TEXTS),
        messages("priority", (None, 1.0, False, "1", -1, 11, math.nan, [1])),
        messages("not_before", NOT_TIMES),
        messages("expires_at", NOT_TIMES),
        messages("group_key", NOT_TEXTS),
        messages("dedup_key", NOT_TEXTS),
    ],
    "receive": [
        each(NOT_NAMES, lambda b, v: b.receive(v)),
        each(NOT_NAMES, lambda b, v: b.receive(QUEUE, subscription=v)),
        each((0, -1, *NOT_WHOLE), lambda b, v: b.receive(QUEUE, limit=v)),
        each((None, *NOT_SECONDS), lambda b, v: b.receive(QUEUE, wait_seconds=v)),
        each((0, *NOT_SECONDS), lambda b, v: b.receive(QUEUE, lease_seconds=v)),
    ],
    "poll": [
        each(NOT_NAMES, lambda b, v: b.poll(v, "default", start=0, count=1)),
        each(NOT_NAMES, lambda b, v: b.poll(QUEUE, v, start=0, count=1)),
        each((-1, *NOT_WHOLE), lambda b, v: b.poll(QUEUE, "default", start=v, count=9)),
        each((0, *NOT_WHOLE), lambda b, v: b.poll(QUEUE, "default", start=0, count=v)),
    ],
    "ask_again": [
        each(NOT_NAMES, lambda b, v: b.ask_again(v, "default", 1)),
        each(NOT_NAMES, lambda b, v: b.ask_again(QUEUE, v, 1)),
        each((-1, 10**30, *NOT_WHOLE), lambda b, v: b.ask_again(QUEUE, "default", v)),
    ],
    "settle": [
        each_of_given(NOT_NAMES, lambda b, given, v: b.settle(v, [base.Ack(targets=given)])),
        each_of_given(NOT_NAMES, lambda b, given, v: b.settle(QUEUE, [base.Ack(targets=given)], v)),
        each((None, *NOT_LISTS, base.AckUpTo(index=9)), lambda b, v: b.settle(QUEUE, v)),
        each_of_given(
            (
                None,
                "junk",
                base.Ack,
                base.DeleteQueue(queue=QUEUE),
                *(base.AckUpTo(index=v) for v in NOT_WHOLE),
                *(base.Ack(targets=v) for v in (None, *NOT_LISTS)),
                *(base.Ack(targets=[v]) for v in NOT_TARGETS),
                *(base.Nack(targets=[], reason=v) for v in (None, *NOT_TEXTS)),
                *(base.Nack(targets=[], delay_seconds=v) for v in NOT_SECONDS),
                *(base.Extend(targets=[], seconds=v) for v in (None, 0, *NOT_SECONDS)),
            ),
            lambda b, given, v: b.settle(QUEUE, [base.Ack(targets=given), v]),
        ),
    ],
    "ack": [
        each_of_given(NOT_NAMES, lambda b, given, v: b.ack(v, given)),
        each_of_given(NOT_NAMES, lambda b, given, v: b.ack(QUEUE, given, v)),
        each((None, *NOT_LISTS), lambda b, v: b.ack(QUEUE, v)),
        each_of_given(NOT_TARGETS, lambda b, given, v: b.ack(QUEUE, [*given, v])),
        each_of_given([None], lambda b, given, v: b.ack(QUEUE, given[0])),  # type: ignore[arg-type]
        each_of_given(
            (1.0, True),
            lambda b, given, v: b.ack(QUEUE, [msgspec.structs.replace(given[0], index=v)]),
        ),
    ],
    "ack_up_to": [
        each(NOT_NAMES, lambda b, v: b.ack_up_to(v, 9)),
        each(NOT_NAMES, lambda b, v: b.ack_up_to(QUEUE, 9, v)),
        each(NOT_WHOLE, lambda b, v: b.ack_up_to(QUEUE, v)),
    ],
    "nack": [
        each_of_given(NOT_NAMES, lambda b, given, v: b.nack(v, given)),
        each_of_given(NOT_NAMES, lambda b, given, v: b.nack(QUEUE, given, v)),
        each((None, *NOT_LISTS), lambda b, v: b.nack(QUEUE, v)),
        each_of_given(NOT_TARGETS, lambda b, given, v: b.nack(QUEUE, [*given, v])),
        each_of_given((None, *NOT_TEXTS), lambda b, given, v: b.nack(QUEUE, given, reason=v)),
        each_of_given(NOT_SECONDS, lambda b, given, v: b.nack(QUEUE, given, delay_seconds=v)),
        each_of_given(
            (1.0, True),
            lambda b, given, v: b.nack(QUEUE, [msgspec.structs.replace(given[0], index=v)]),
        ),
    ],
    "extend": [
        each_of_given(NOT_NAMES, lambda b, given, v: b.extend(v, given, 9)),
        each_of_given(NOT_NAMES, lambda b, given, v: b.extend(QUEUE, given, 9, v)),
        each((None, *NOT_LISTS), lambda b, v: b.extend(QUEUE, v, 9)),
        each_of_given(NOT_TARGETS, lambda b, given, v: b.extend(QUEUE, [*given, v], 9)),
        each_of_given((None, 0, *NOT_SECONDS), lambda b, given, v: b.extend(QUEUE, given, v)),
    ],
    "give_back": [
        each_of_given(NOT_NAMES, lambda b, given, v: b.give_back(v, given)),
        each_of_given(NOT_NAMES, lambda b, given, v: b.give_back(QUEUE, given, v)),
        each((None, *NOT_LISTS), lambda b, v: b.give_back(QUEUE, v)),
        each_of_given(NOT_TARGETS, lambda b, given, v: b.give_back(QUEUE, [*given, v])),
    ],
    "read": [
        each(NOT_NAMES, lambda b, v: b.read(v)),
        each(NOT_WHOLE, lambda b, v: b.read(QUEUE, v)),
        each((0, -1, *NOT_WHOLE), lambda b, v: b.read(QUEUE, 0, v)),
    ],
    "scan": [
        each(NOT_NAMES, lambda b, v: b.scan(v, 0, 1)),
        each((-1, *NOT_WHOLE), lambda b, v: b.scan(QUEUE, v, 1)),
        each((-1, *NOT_WHOLE), lambda b, v: b.scan(QUEUE, 0, v)),
        each((-1, *NOT_WHOLE), lambda b, v: b.scan(QUEUE, 0, 1, most_bytes=v)),
    ],
    "view": [
        each(NOT_NAMES, lambda b, v: b.view(v)),
        each(NOT_NAMES, lambda b, v: b.view(QUEUE, v)),
        each((0, 1, "yes", []), lambda b, v: b.view(QUEUE, settled=v)),
        each((0, -1, *NOT_WHOLE), lambda b, v: b.view(QUEUE, limit=v)),
        each(NOT_WHOLE, lambda b, v: b.view(QUEUE, start=v)),
    ],
    "find": [
        each(NOT_NAMES, lambda b, v: b.find(v, ["x"])),
        each((None, *NOT_LISTS), lambda b, v: b.find(QUEUE, v)),
        each((None, *NOT_TEXTS), lambda b, v: b.find(QUEUE, [v])),
    ],
    "get": [
        each(NOT_NAMES, lambda b, v: b.get(v, "x")),
        each((None, "x", *NOT_TEXTS), lambda b, v: b.get(QUEUE, v)),
    ],
    "dead_letters": [
        each(NOT_NAMES, lambda b, v: b.dead_letters(v)),
        each(NOT_WHOLE, lambda b, v: b.dead_letters(QUEUE, v)),
        each((0, -1, *NOT_WHOLE), lambda b, v: b.dead_letters(QUEUE, 0, v)),
    ],
    "replay": [
        each(NOT_NAMES, lambda b, v: b.replay(v)),
        each(NOT_LISTS, lambda b, v: b.replay(QUEUE, v)),
        each((None, *NOT_TEXTS), lambda b, v: b.replay(QUEUE, [v])),
    ],
    "discard": [
        each(NOT_NAMES, lambda b, v: b.discard(v)),
        each(NOT_LISTS, lambda b, v: b.discard(QUEUE, v)),
        each((None, *NOT_TEXTS), lambda b, v: b.discard(QUEUE, [v])),
    ],
    "held": [
        each(NOT_NAMES, lambda b, v: b.held(v, "after")),
        each(NOT_NAMES, lambda b, v: b.held(QUEUE, v)),
        each((0, -1, *NOT_WHOLE), lambda b, v: b.held(QUEUE, "after", v)),
    ],
    "release": [
        each(NOT_NAMES, lambda b, v: b.release(v, "after", [1])),
        each(NOT_NAMES, lambda b, v: b.release(QUEUE, v, [1])),
        each((None, *NOT_LISTS), lambda b, v: b.release(QUEUE, "after", v)),
        each((-1, 10**30, *NOT_WHOLE), lambda b, v: b.release(QUEUE, "after", [2, v])),
    ],
}
CALLS: dict[str, list[tuple[object, Call]]] = {
    method: [call for calls in lists for call in calls] for method, lists in WRONG.items()
}


@pytest_asyncio.fixture
async def given(broker: Broker, queue: str) -> list[Delivery]:
    """Two deliveries in flight, of a queue with a dead letter and a subscription that waits."""
    await broker.create_subscription(queue, "after", after=["default"])
    await broker.publish(queue, [b"%d" % n for n in range(6)])
    await broker.alter_subscription(queue, "default", max_deliveries=1)
    await broker.nack(queue, await broker.receive(queue))
    await broker.alter_subscription(queue, "default", max_deliveries=5)
    return await broker.receive(queue, limit=2)


def test_every_method_of_the_broker_is_given_wrong_input() -> None:
    methods = {
        name
        for name, method in inspect.getmembers(Broker, inspect.iscoroutinefunction)
        if not name.startswith("_") and len(inspect.signature(method).parameters) > 1
    }
    assert methods == WRONG.keys()


@pytest.mark.parametrize("method", WRONG)
async def test_wrong_input_is_refused_and_changes_nothing(
    world: World, broker: Broker, given: list[Delivery], method: str
) -> None:
    before = await broker.stats()
    for value, call in CALLS[method]:
        try:
            answer = await call(broker, given)
        except PenstockError:
            continue
        pytest.fail(f"took {value!r} and answered {answer!r}")
    assert await broker.stats() == before
    if world.backend.survives_restart:
        await world.restart()
        assert await broker.stats() == before
    # And what was in flight still is
    assert [o.value for o in await broker.ack(QUEUE, given)] == ["done", "done"]


async def test_the_commands_refuse_it_too_when_nobody_has_looked_before(
    world: World, broker: Broker, given: list[Delivery]
) -> None:
    before = await broker.stats()
    wrong: Any = 1.5
    store = world.store
    for call in (
        store.receive(QUEUE, "default", base.Next(limit=wrong)),
        store.receive(QUEUE, "default", base.Next(limit=1, lease_seconds="5")),  # type: ignore[arg-type]
        store.receive(QUEUE, "default", base.Poll(start=wrong, count=9)),
        store.receive(QUEUE, "default", base.Poll(start=0, count=wrong)),
        store.receive(QUEUE, "default", base.Again(index=wrong)),
        store.operate(QUEUE, base.Release(subscription="after", indexes=[wrong])),
        store.operate(QUEUE, base.Replay(ids=[wrong])),
        store.settle(QUEUE, "default", [base.AckUpTo(index=wrong)]),
        store.settle(QUEUE, "default", [base.Ack(targets=[*given, wrong])]),
        store.settle(QUEUE, "default", [base.Nack(targets=given, reason=b"x")]),  # type: ignore[arg-type]
        store.settle(QUEUE, "default", [base.Nack(targets=given, reason="\ud800")]),
        store.define(base.CreateQueue(queue="new", config=SubscriptionConfig())),  # type: ignore[arg-type]
        store.define(
            base.CreateSubscription(queue=QUEUE, subscription="new", config=QueueConfig())  # type: ignore[arg-type]
        ),
    ):
        with pytest.raises(InvalidArgument):
            await call
    assert await broker.stats() == before


async def test_a_reason_that_cannot_be_stored_leaves_no_dead_letter_queue_behind(
    broker: Broker, queue: str
) -> None:
    await broker.alter_subscription(queue, "default", max_deliveries=1)
    await broker.publish(queue, [b"a"])
    given = await broker.receive(queue)
    with pytest.raises(InvalidArgument, match="UTF-8"):
        await broker.nack(queue, given, reason="\ud800")
    assert [stats.name for stats in await broker.stats()] == [queue]


async def test_one_thing_where_a_list_is_wanted_is_refused_with_advice(
    broker: Broker, given: list[Delivery]
) -> None:
    one: Any
    for one in (given[0], given[0].receipt, given[0].id):
        with pytest.raises(InvalidArgument, match="pass a list of deliveries"):
            await broker.ack(QUEUE, one)
    for one in (b"body", NewMessage(body=b"body")):
        with pytest.raises(InvalidArgument, match="pass a list of bytes or NewMessage"):
            await broker.publish(QUEUE, one)
    with pytest.raises(InvalidArgument, match="pass a list of message ids"):
        await broker.find(QUEUE, given[0].id)
    with pytest.raises(InvalidArgument, match="pass a list of subscriptions' names"):
        await broker.create_subscription(QUEUE, "audit", after="default")
    with pytest.raises(InvalidName, match="named by a str"):
        await broker.receive([QUEUE])  # type: ignore[arg-type]


async def test_what_can_be_gone_through_only_once_is_taken_whole(
    broker: Broker, queue: str
) -> None:
    every: Any = (b"%d" % n for n in range(4))
    await broker.publish(queue, every)
    every = (d.receipt for d in await broker.receive(queue, limit=2))
    assert [o.value for o in await broker.ack(queue, every)] == ["done", "done"]
    every = iter(await broker.receive(queue, limit=2))
    assert [o.value for o in await broker.nack(queue, every)] == ["done", "done"]
    every = {message.id for message in await broker.read(queue)}
    assert None not in await broker.find(queue, every)


async def test_a_text_of_a_class_of_its_own_is_stored_as_a_text(
    world: World, broker: Broker
) -> None:
    class Name(StrEnum):
        ORDERS = "orders"
        RED = "red"

    await broker.create_queue(Name.ORDERS)
    await broker.create_subscription(Name.ORDERS, Name.RED)
    message = NewMessage(
        body=b"a",
        topic=Name.RED,
        content_type=Name.RED,
        group_key=Name.RED,
        dedup_key=Name.RED,
        attributes={Name.RED: Name.RED},
    )
    await broker.publish(Name.ORDERS, [message])
    await broker.nack("orders", await broker.receive("orders"), reason=Name.RED)
    (stored,) = await broker.receive("orders", subscription="red")
    texts = (stored.topic, stored.content_type, stored.group_key, stored.dedup_key)
    assert texts == ("red",) * 4
    assert stored.attributes == {"red": "red"}
    assert {type(text) for text in (*texts, *stored.attributes)} == {str}


async def test_a_time_whose_zone_knows_no_offset_is_refused(broker: Broker, queue: str) -> None:
    class Nowhere(tzinfo):
        def utcoffset(self, moment: datetime | None) -> None:
            return None

        def dst(self, moment: datetime | None) -> None:
            return None

        def tzname(self, moment: datetime | None) -> str:
            return "nowhere"

    moment = datetime(2030, 1, 1, tzinfo=Nowhere())
    with pytest.raises(InvalidArgument, match="no zone"):
        await broker.publish(queue, [NewMessage(body=b"a", not_before=moment)])


async def test_consumers_do_not_share_the_attributes_they_are_given(
    broker: Broker, queue: str
) -> None:
    sent = {"a": "1"}
    await broker.publish(queue, [b"plain", NewMessage(body=b"x", attributes=sent)])
    sent["a"] = "2"
    for message in await broker.receive(queue, limit=2):
        message.attributes["mine"] = "yes"
    assert [m.attributes for m in await broker.read(queue)] == [{}, {"a": "1"}]
    await broker.publish(queue, [b"another"])
    assert (await broker.receive(queue))[0].attributes == {}


async def test_what_is_asked_for_again_counts_as_in_flight(broker: Broker, queue: str) -> None:
    await broker.alter_subscription(queue, "default", max_in_flight=2)
    await broker.publish(queue, [b"a", b"b", b"c"])
    first, second = await broker.receive(queue, limit=2)
    await broker.nack(queue, [first])
    assert indexes(await broker.receive(queue)) == [0]
    await broker.nack(queue, [second], delay_seconds=600)
    assert indexes(await broker.receive(queue)) == [2]
    # One that is in flight already takes no more room, another one would
    assert (await broker.ask_again(queue, "default", 0)).deliveries == 3
    with pytest.raises(NotLeased, match="max_in_flight"):
        await broker.ask_again(queue, "default", 1)


async def test_a_bound_may_be_larger_than_any_disk(broker: Broker, queue: str) -> None:
    await broker.alter_queue(queue, max_bytes=2**62, retention_bytes=2**63 - 1)
    await broker.publish(queue, [b"a"])
    await broker.alter_queue(queue, max_bytes=1)
    with pytest.raises(QueueFull):
        await broker.publish(queue, [b"b"])
    assert bodies(await broker.read(queue)) == [b"a"]


async def test_the_result_of_a_publish_says_what_it_holds(broker: Broker, queue: str) -> None:
    result = await broker.publish(queue, [b"a", b"b"])
    assert repr(result) == (
        f"<PublishResult: 2 messages, indexes 0 to 1, durability {result.durability}>"
    )


@pytest.mark.with_a_log
async def test_a_record_that_is_no_event_is_reported_with_its_file_and_offset(
    world: World, queue: str, clock: ManualClock, directory: Path, tmp_path: Path
) -> None:
    """Were one written all the same, by a defect or by another hand."""
    store: Any = world.store
    place = store.machine.journal.append(
        ev.Nacked(at_ns=0, subscription_id=2, indexes=[], due_ns=[], reason=b"x")  # type: ignore[arg-type]
    )
    await store.tick()
    shutil.copytree(directory, tmp_path / "damaged")
    with pytest.raises(CorruptLog, match="penstock wal repair") as caught:
        await WalStore.open(DiskFiles(tmp_path / "damaged"), clock=clock)
    assert caught.value.file == file_name(segment_of(place.locator))
    assert caught.value.offset == offset_of(place.locator)


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("a-file", StorageError),
        ("wal:a-file/below", StorageError),
        ("a\0b", StorageError),
        ("~nobody-has-this-name/data", StorageError),
        ("wal://data", UnknownBackend),
        ("wal:", UnknownBackend),
        (b"data", InvalidArgument),
        ("\ud800", StorageError),
        (5, InvalidArgument),
        (None, InvalidArgument),
    ],
)
async def test_a_directory_that_cannot_be_used_is_refused_with_advice(
    url: Any, kind: type[PenstockError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a-file").write_bytes(b"")
    with pytest.raises(kind, match=r"use|choose|needs"):
        await open_store(url)
    assert os.listdir(tmp_path) == ["a-file"]


@pytest.mark.parametrize(
    "options",
    [
        {"segment_bytes": "1"},
        {"segment_bytes": 1e6},
        {"segment_bytes": 2**70},
        {"cache_bytes": 1.5},
        {"cache_bytes": -1},
        {"sync": None},
        {"sync": ["always"]},
    ],
    ids=repr,
)
async def test_an_option_that_cannot_be_used_is_refused(
    options: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(InvalidArgument):
        await open_store(str(tmp_path), **options)


async def test_a_directory_may_be_below_the_home_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for url in ("~/a", "wal:~/b", f"wal://{tmp_path}/c"):
        await (await open_store(url)).close()
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "c"]
