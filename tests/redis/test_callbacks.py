"""Callbacks, where several servers share the definitions and the messages."""

from __future__ import annotations

from penstock.broker import Broker
from penstock.core.callback import Callback
from penstock.push import LOOPBACK, Dispatcher
from penstock.storage.redis.store import RedisStore
from tests.push.receiver import Receiver


async def test_what_one_server_defined_and_published_another_calls_for(
    broker: Broker, address: str
) -> None:
    # Given a server that calls, and another that does not
    other = Broker(await RedisStore.open(address))
    dispatcher = Dispatcher(other, allowed=LOOPBACK, refresh_seconds=0.05)
    await dispatcher.start()
    async with Receiver() as receiver:
        # When the second one has a callback defined, and messages published
        await broker.create_subscription("jobs", "hook", callback=Callback(url=receiver.url()))
        await broker.publish("jobs", [b"%d" % n for n in range(20)])
        # Then the first one calls, once for each
        calls = await receiver.wait_for(20)
        assert sorted(int(call.body) for call in calls) == list(range(20))
        await dispatcher.close()
    await other.close()
    (hook,) = [s for s in (await broker.queue_stats("jobs")).subscriptions if s.name == "hook"]
    assert hook.acked == 20


async def test_two_servers_that_both_call_do_no_work_twice(broker: Broker, address: str) -> None:
    other = Broker(await RedisStore.open(address))
    dispatchers = [
        Dispatcher(one, allowed=LOOPBACK, refresh_seconds=0.05) for one in (broker, other)
    ]
    async with Receiver() as receiver:
        await broker.create_subscription("jobs", "hook", callback=Callback(url=receiver.url()))
        for dispatcher in dispatchers:
            await dispatcher.start()
        await broker.publish("jobs", [b"%d" % n for n in range(60)])
        await receiver.wait_for(60)
        for dispatcher in dispatchers:
            await dispatcher.close()
        assert sorted(int(call.body) for call in receiver.calls) == list(range(60))
    await other.close()
