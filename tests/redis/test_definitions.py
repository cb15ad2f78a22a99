"""What a server knows of a queue after a change of its own, without reading it again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random

import pytest_asyncio

from penstock.core.callback import Callback
from penstock.core.config import SubscriptionConfig
from penstock.storage import base
from penstock.storage.redis.connection import Connection
from penstock.storage.redis.defining import Defining
from penstock.storage.redis.steps import Steps
from penstock.storage.redis.store import RedisStore

HOOK = Callback(url="https://a.example/hook")
SECRETS = [f"whsec_{letter * 32}" for letter in "AB"]


@pytest_asyncio.fixture
async def steps(address: str) -> AsyncIterator[Steps]:
    connection = Connection(address, timeout_seconds=5)
    await connection.check_masters()
    yield Steps(connection, None)
    await connection.close()


async def test_what_a_server_knows_after_its_own_change_is_what_there_is(steps: Steps) -> None:
    defining = Defining(steps, Random(1))
    made: list[base.Change] = [
        base.CreateQueue(queue="jobs"),
        base.CreateSubscription(queue="jobs", subscription="plain"),
        base.CreateSubscription(
            queue="jobs", subscription="some", config=SubscriptionConfig(filter="priority > 3")
        ),
        base.CreateSubscription(
            queue="jobs",
            subscription="last",
            # A list, where a definition that was read has a tuple.
            config=SubscriptionConfig(after=["plain", "some"], callback=HOOK),  # type: ignore[arg-type]
            start="earliest",
            secret=SECRETS[0],
        ),
        base.AlterSubscription(
            queue="jobs", subscription="some", changes={"callback": HOOK}, secret=SECRETS[0]
        ),
        base.RotateSecret(queue="jobs", subscription="last", secret=SECRETS[1]),
        base.AlterSubscription(queue="jobs", subscription="plain", changes={"paused": True}),
        base.Seek(queue="jobs", subscription="plain", start=0),
        base.Seek(queue="jobs", subscription="some", start=0),
        base.DeleteSubscription(queue="jobs", subscription="some"),
        base.DeleteSubscription(queue="jobs", subscription="plain"),
        base.AlterQueue(queue="jobs", changes={"max_messages": 5}),
    ]
    for change in made:
        await defining.apply(change)
        known = await steps.definition("jobs")
        assert known == await Steps(steps.connection, None).learn("jobs"), change


async def test_a_server_forgets_queues_that_another_one_has_deleted(address: str) -> None:
    one, other = await RedisStore.open(address), await RedisStore.open(address)
    for name in ("kept", "gone"):
        await one.define(base.CreateQueue(queue=name))
        await other.define(base.AlterQueue(queue=f"{name}-dlq", changes={"max_messages": 5}))
        await other.queue_stats(name)
        await other.receive(name, "default", base.Next(limit=1))
    await one.define(base.DeleteQueue(queue="gone"))
    await other.tick()
    assert set(other._steps._known) == {"kept", "kept-dlq"}
    await one.close()
    await other.close()


async def test_what_a_server_knows_is_read_again_only_if_it_has_changed(steps: Steps) -> None:
    defining, other = Defining(steps, Random(1)), Steps(steps.connection, None)
    some = SubscriptionConfig(filter="priority > 3")
    await defining.apply(base.CreateQueue(queue="jobs"))
    await defining.apply(base.CreateSubscription(queue="jobs", subscription="some", config=some))
    # Given a server that knows a queue, also after it has moved a subscription
    await defining.apply(base.Seek(queue="jobs", subscription="some", start=0))
    known = await steps.definition("jobs")
    # Then it is told that nothing has changed
    assert await steps.learn("jobs") is known
    # When another one makes a change
    await Defining(other, Random(2)).apply(
        base.CreateSubscription(queue="jobs", subscription="new", config=some)
    )
    # Then that is read
    assert set((await steps.learn("jobs")).readers) == {"default", "some", "new"}


async def test_a_change_of_one_subscription_reads_no_other(steps: Steps) -> None:
    # Given a server that knows the queue
    defining = Defining(steps, Random(1))
    await defining.apply(base.CreateQueue(queue="jobs"))
    before = steps.connection.round_trips
    # When it changes subscriptions
    await defining.apply(base.CreateSubscription(queue="jobs", subscription="one"))
    await defining.apply(
        base.AlterSubscription(queue="jobs", subscription="one", changes={"paused": True})
    )
    await defining.apply(base.DeleteSubscription(queue="jobs", subscription="one"))
    # Then each change is one step
    assert steps.connection.round_trips - before == 3
