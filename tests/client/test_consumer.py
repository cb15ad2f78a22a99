from __future__ import annotations

import asyncio
import signal

import pytest

from penstock.client import AsyncClient, Consumer, Delivery
from penstock.client.leases import Leases
from penstock.errors import InvalidArgument, QueueNotFound
from tests.client.recorder import Recorder
from tests.client.server import Server


async def test_deliveries_are_fetched_many_at_once_and_handed_out_in_order(
    client: AsyncClient, queue: str, recorder: Recorder
) -> None:
    await client.publish(queue, [str(number).encode() for number in range(300)])
    bodies: list[bytes] = []

    async with client.consumer(queue, prefetch=100) as consumer:
        async for delivery in consumer:
            bodies.append(delivery.body)
            await client.ack(queue, [delivery])
            if len(bodies) == 300:
                break

    assert bodies == [str(number).encode() for number in range(300)]
    assert len(recorder.bodies("receive")) <= 10


async def test_no_more_than_the_prefetch_is_leased_ahead(client: AsyncClient, queue: str) -> None:
    await client.publish(queue, [b"x"] * 50)

    async with client.consumer(queue, prefetch=10) as consumer:
        taken = [await anext(consumer) for _ in range(3)]
        ahead = (await client.subscription_stats(queue)).in_flight - len(taken)

    assert 5 <= ahead <= 10


async def test_what_nobody_took_is_given_back_at_the_end(client: AsyncClient, queue: str) -> None:
    await client.publish(queue, [b"x"] * 10)

    async with client.consumer(queue, prefetch=10) as consumer:
        taken = await anext(consumer)

    left = await client.receive(queue, limit=20, wait_seconds=1)
    assert len(left) == 9
    assert {one.deliveries for one in left} == {1}, "what nobody took does not count"
    assert taken.index not in {one.index for one in left}


async def test_a_lease_that_was_settled_as_it_was_extended_is_not_called_lost(
    client: AsyncClient, queue: str, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    # Given two leases that are about to be extended
    await client.publish(queue, [b"a", b"b"])
    done, failed = await client.receive(queue, limit=2)
    leases = Leases(client, queue, "default", seconds=30)
    leases.add([done, failed])
    extending = asyncio.create_task(leases._extend([done, failed]))
    await asyncio.sleep(0)
    # When their handlers end, in time for the same request
    settler = client.settler(queue)
    settler.ack([done]).add_done_callback(lambda _: leases.remove(done))
    settler.nack([failed]).add_done_callback(lambda _: leases.remove(failed))
    await extending
    # Then nobody is told of a lease that was lost
    assert len(recorder.bodies("settle")) == 1
    assert (len(leases), caplog.messages) == (0, [])


async def test_leases_of_what_waits_are_kept(client: AsyncClient, queue: str) -> None:
    await client.publish(queue, [b"a", b"b"])

    async with client.consumer(queue, prefetch=2, lease_seconds=1.5, wait_seconds=0.1) as consumer:
        first = await anext(consumer)
        await client.ack(queue, [first])
        await asyncio.sleep(2.5)  # the server's clock is a real one
        second = await anext(consumer)
        await client.ack(queue, [second])

    stats = await client.subscription_stats(queue)
    assert (stats.acked, stats.redelivered, stats.leases_expired) == (2, 0, 0)


async def test_an_error_that_does_not_pass_reaches_the_taker(client: AsyncClient) -> None:
    async with client.consumer("nowhere") as consumer:
        with pytest.raises(QueueNotFound):
            await anext(consumer)


async def test_a_stop_wakes_those_who_wait(client: AsyncClient, queue: str) -> None:
    async with client.consumer(queue) as consumer:
        waiting = [asyncio.create_task(consumer.take()) for _ in range(3)]
        await asyncio.sleep(0)

        await asyncio.wait_for(consumer.stop(), 5)

        assert await asyncio.gather(*waiting) == [None, None, None]


async def test_a_stop_leaves_no_receive_behind_that_takes_messages(
    client: AsyncClient, queue: str
) -> None:
    for _ in range(2):
        async with client.consumer(queue):
            await client.queue_stats(queue)

    await client.publish(queue, [b"a"])

    assert len(await client.receive(queue)) == 1


async def test_a_taker_that_gives_up_loses_no_delivery(client: AsyncClient, queue: str) -> None:
    async with client.consumer(queue) as consumer:
        gone = asyncio.create_task(consumer.take())
        stays = asyncio.create_task(consumer.take())
        await asyncio.sleep(0)
        gone.cancel()

        await client.publish(queue, [b"a"])

        delivery = await asyncio.wait_for(stays, 5)
        assert delivery is not None
        assert delivery.body == b"a"


async def test_it_goes_on_when_the_server_was_away(mortal: Server) -> None:
    async with mortal.client() as client:
        await client.create_queue("orders")
        async with client.consumer("orders") as consumer:
            waiting = asyncio.create_task(_next(consumer))
            await asyncio.to_thread(mortal.end, signal.SIGKILL)
            await asyncio.to_thread(mortal.start)
            await client.publish("orders", [b"after"])

            assert (await asyncio.wait_for(waiting, 15)).body == b"after"


async def _next(consumer: Consumer) -> Delivery:
    return await anext(consumer)


async def test_a_consumer_that_was_not_entered_says_so(client: AsyncClient, queue: str) -> None:
    with pytest.raises(InvalidArgument, match="async with"):
        async for _ in client.consumer(queue):
            pass
