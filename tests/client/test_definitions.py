from __future__ import annotations

from datetime import UTC, datetime

import pytest

from penstock import Backoff, QueueConfig, SubscriptionConfig
from penstock.client import AsyncClient, async_client
from penstock.errors import (
    InvalidArgument,
    InvalidDependency,
    InvalidFilter,
    InvalidName,
    NotHeld,
    QueueExists,
    QueueNotFound,
    SubscriptionExists,
)


async def test_a_queue_is_created_altered_described_and_deleted(
    client: AsyncClient, queue: str
) -> None:
    name = f"{queue}-more"
    made = await client.create_queue(name, fifo=True, max_messages=9)
    assert (made.name, made.config.fifo, made.config.max_messages) == (name, True, 9)
    assert [one.name for one in made.subscriptions] == ["default"]

    altered = await client.alter_queue(name, max_messages=None)
    assert altered.config.max_messages is None
    assert await client.queue_stats(name) == altered

    await client.delete_queue(name)
    with pytest.raises(QueueNotFound):
        await client.queue_stats(name)


async def test_a_config_object_does_as_well_as_settings(client: AsyncClient, queue: str) -> None:
    config = QueueConfig(retention_seconds=None, message_ttl_seconds=60)
    assert (await client.create_queue(f"{queue}-config", config)).config == config

    of_subscription = SubscriptionConfig(
        filter="priority > 3", backoff=Backoff(kind="exponential", base_seconds=1)
    )
    made = await client.create_subscription(queue, "some", of_subscription, start="earliest")
    assert made.config == of_subscription

    with pytest.raises(InvalidArgument, match="not both"):
        await client.create_queue("other", config, fifo=True)


async def test_purge_says_how_many_there_were(client: AsyncClient, queue: str) -> None:
    await client.publish(queue, [b"x"] * 3)

    assert await client.purge_queue(queue) == 3
    assert await client.receive(queue) == []


async def test_queues_are_listed_by_page_and_all_at_once(client: AsyncClient, queue: str) -> None:
    for suffix in "ab":
        await client.create_queue(f"{queue}-{suffix}")

    (page,) = await client.queues(after=f"{queue}-a", limit=1)

    assert page.name == f"{queue}-b"
    assert {queue, f"{queue}-a", f"{queue}-b"} <= {one.name for one in await client.stats()}


@pytest.mark.parametrize(
    ("start", "expected"),
    [("earliest", 2), ("latest", 0), (1, 1), (datetime(2020, 1, 1, tzinfo=UTC), 2)],
)
async def test_a_subscription_starts_where_it_is_told(
    client: AsyncClient, queue: str, start: str | int | datetime, expected: int
) -> None:
    await client.publish(queue, [b"a", b"b"])

    made = await client.create_subscription(queue, "late", start=start)

    assert made.ready == expected


async def test_a_subscription_is_altered_sought_paused_resumed_and_deleted(
    client: AsyncClient, queue: str
) -> None:
    await client.create_subscription(queue, "sub", lease_seconds=5)
    await client.publish(queue, [b"a"])
    await client.alter_subscription(queue, "sub", lease_seconds=7)
    assert (await client.subscription_stats(queue, "sub")).config.lease_seconds == 7

    await client.pause(queue, "sub")
    assert await client.receive(queue, subscription="sub") == []
    await client.resume(queue, "sub")
    assert len(await client.receive(queue, subscription="sub")) == 1
    await client.seek(queue, "earliest", "sub")
    assert len(await client.receive(queue, subscription="sub")) == 1

    await client.delete_subscription(queue, "sub")
    assert [one.name for one in await client.subscriptions(queue)] == ["default"]


async def test_subscriptions_are_listed_however_many_pages_they_take(
    client: AsyncClient, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_client, "_SUBSCRIPTIONS", 2)
    for name in ("d", "b", "a", "c"):
        await client.create_subscription(queue, name)

    found = await client.subscriptions(queue)

    assert [one.name for one in found] == ["a", "b", "c", "d", "default"]


async def test_a_queue_is_made_by_whoever_comes_first(client: AsyncClient, queue: str) -> None:
    found = await client.ensure_queue(queue)
    made = await client.ensure_queue(f"{queue}-new", max_messages=7)
    again = await client.ensure_queue(f"{queue}-new", max_messages=7)

    assert (found.name, found.is_new) == (queue, False)
    assert (made.is_new, again.is_new) == (True, False)
    assert made.created_at == again.created_at
    with pytest.raises(QueueExists):
        await client.ensure_queue(f"{queue}-new", max_messages=8)


async def test_a_subscription_is_made_by_whoever_comes_first(
    client: AsyncClient, queue: str
) -> None:
    callback = {"url": "http://127.0.0.1:1/", "mode": "notify"}
    first = await client.ensure_subscription(queue, "sub", lease_seconds=7, callback=callback)
    second = await client.ensure_subscription(queue, "sub", lease_seconds=7, callback=callback)

    assert first.secret is not None
    assert second.secret is None
    assert (first.is_new, second.is_new) == (True, False)
    assert second.created_at == first.created_at
    with pytest.raises(SubscriptionExists):
        await client.ensure_subscription(queue, "sub", lease_seconds=8)


async def test_what_a_dependency_holds_is_listed_and_released(
    client: AsyncClient, queue: str
) -> None:
    await client.create_subscription(queue, "after", after=["default"])
    await client.publish(queue, [b"a", b"b"])

    assert await client.held(queue, "after") == [0, 1]
    await client.release(queue, "after", [1])

    assert [one.index for one in await client.receive(queue, subscription="after")] == [1]
    with pytest.raises(NotHeld):
        await client.release(queue, "after", [1])


async def test_refusals_are_raised_as_what_they_are(client: AsyncClient, queue: str) -> None:
    with pytest.raises(QueueExists):
        await client.create_queue(queue)
    with pytest.raises(SubscriptionExists):
        await client.create_subscription(queue, "default")
    with pytest.raises(InvalidName):
        await client.create_queue("no name")
    with pytest.raises(InvalidFilter):
        await client.create_subscription(queue, "bad", filter="1 +")
    with pytest.raises(InvalidDependency):
        await client.create_subscription(queue, "bad", after=["nobody"])
    with pytest.raises(InvalidArgument, match="colour"):
        await client.create_queue(f"{queue}-x", colour="red")
    with pytest.raises(InvalidArgument, match="JSON"):
        await client.create_queue(f"{queue}-x", fifo=object())


async def test_what_waits_for_what_can_be_looked_at(client: AsyncClient, queue: str) -> None:
    await client.create_subscription(queue, "late", after=["default"])
    await client.publish(queue, [b'{"n": 1}'])

    [held] = await client.held_messages(queue, "late")
    assert (held.index, held.waits_for) == (0, ["default"])
    assert (await client.graph(queue)).dependencies[0].before == "default"
    assert (await client.test_filter(queue, "body.n == 1")).matched == [0]
