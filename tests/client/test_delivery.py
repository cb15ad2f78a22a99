from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from penstock import Backoff, Outcome
from penstock.client import AsyncClient
from penstock.errors import InvalidArgument, InvalidReceipt, PenstockError, SubscriptionNotFound
from tests.client.recorder import Recorder


async def test_a_delivery_says_all_about_itself(client: AsyncClient, queue: str) -> None:
    await client.publish(queue, [b"a"])

    (delivery,) = await client.receive(queue, lease_seconds=60)

    assert delivery.body == b"a"
    assert (delivery.queue, delivery.subscription) == (queue, "default")
    assert delivery.deliveries == 1
    assert delivery.deadline is not None
    left = delivery.deadline - datetime.now(UTC)  # noqa: TID251
    assert 30 < left.total_seconds() <= 60


async def test_a_receive_waits_for_the_first_message(client: AsyncClient, queue: str) -> None:
    waiting = asyncio.create_task(client.receive(queue, wait_seconds=10))
    await client.queue_stats(queue)

    await client.publish(queue, [b"a"])

    (delivery,) = await asyncio.wait_for(waiting, 5)
    assert delivery.body == b"a"


async def test_concurrent_acks_go_in_one_request_and_each_caller_gets_its_own(
    client: AsyncClient, queue: str, recorder: Recorder
) -> None:
    # Given
    await client.publish(queue, [b"x"] * 20)
    deliveries = await client.receive(queue, limit=20)
    await client.ack(queue, deliveries[:1])
    recorder.requests.clear()

    # When
    outcomes = await asyncio.gather(*(client.ack(queue, [one]) for one in deliveries))

    # Then
    assert len(recorder.bodies("settle")) == 1
    assert outcomes[0] == [Outcome.ALREADY_SETTLED]
    assert outcomes[1:] == [[Outcome.DONE]] * 19
    assert (await client.subscription_stats(queue)).acked == 20


async def test_acks_nacks_and_extensions_share_a_request(
    client: AsyncClient, queue: str, recorder: Recorder
) -> None:
    await client.publish(queue, [b"a", b"b", b"c", b"d"])
    a, b, c, d = await client.receive(queue, limit=4)

    outcomes = await asyncio.gather(
        client.nack(queue, [b], delay_seconds=0, reason="no"),
        client.ack(queue, [a, "00000000-0000-7000-8000-000000000000"]),
        client.extend(queue, [c], 100),
        client.nack(queue, [d.receipt], delay_seconds=100),
    )

    assert len(recorder.bodies("settle")) == 1
    assert list(outcomes) == [
        [Outcome.DONE],
        [Outcome.DONE, Outcome.NOT_FOUND],
        [Outcome.DONE],
        [Outcome.DONE],
    ]
    (again,) = await client.receive(queue, limit=10)
    assert (again.body, again.deliveries) == (b"b", 2)


async def test_a_bad_receipt_fails_alone(client: AsyncClient, queue: str) -> None:
    await client.publish(queue, [b"a", b"b"])
    first, second = await client.receive(queue, limit=2)

    answers = await asyncio.gather(
        client.ack(queue, [first]),
        client.ack(queue, ["no receipt"]),
        client.ack(queue, [second]),
        return_exceptions=True,
    )

    assert answers[0] == answers[2] == [Outcome.DONE]
    assert isinstance(answers[1], InvalidReceipt)


async def test_what_could_hit_a_newer_delivery_is_never_sent_twice(
    client: AsyncClient, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.publish(queue, [b"a"])
    (delivery,) = await client.receive(queue)
    seen: list[bool] = []
    request = client._transport.request

    async def watched(*arguments: str, **options: bool) -> bytes:
        seen.append(options["is_repeatable"])
        return await request(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(client._transport, "request", watched)

    await client.nack(queue, [delivery.id], delay_seconds=0)
    await client.nack(queue, [delivery], delay_seconds=0)
    await client.extend(queue, [delivery.id], 5)
    await client.extend(queue, [delivery], 5)
    await client.extend(queue, [delivery], 5, further=True)  # it would be extended twice
    await client.ack(queue, [delivery.id])

    assert seen == [False, True, False, True, False, True]


async def test_a_lease_is_extended_from_now_or_further(client: AsyncClient, queue: str) -> None:
    await client.publish(queue, [b"a"])
    (delivery,) = await client.receive(queue, lease_seconds=100)
    assert delivery.deadline is not None

    await client.extend(queue, [delivery], 1000, further=True)

    (viewed,) = await client.view(queue)
    assert viewed.leased_until == delivery.deadline + timedelta(seconds=1000)


async def test_a_stale_receipt_settles_nothing(client: AsyncClient, queue: str) -> None:
    await client.publish(queue, [b"a"])
    (stale,) = await client.receive(queue)
    await client.nack(queue, [stale], delay_seconds=0)
    await client.receive(queue)

    assert await client.ack(queue, [stale]) == [Outcome.NOT_LEASED]


async def test_ack_up_to_settles_everything_below(client: AsyncClient, queue: str) -> None:
    await client.publish(queue, [b"x"] * 5)

    assert await client.ack_up_to(queue, 3) == 3
    assert [one.index for one in await client.receive(queue, limit=10)] == [3, 4]


async def test_poll_leases_by_index_and_again_delivers_one_more_time(
    client: AsyncClient, queue: str
) -> None:
    await client.publish(queue, [b"x"] * 5)

    polled = await client.poll(queue, "default", start=0, count=3)
    again = await client.ask_again(queue, "default", 1)

    assert [one.index for one in polled] == [0, 1, 2]
    assert (again.index, again.deliveries, again.subscription) == (1, 2, "default")


async def test_settling_nothing_is_nothing(
    client: AsyncClient, queue: str, recorder: Recorder
) -> None:
    assert await client.ack(queue, []) == []
    assert await client.nack(queue, []) == []
    assert await client.extend(queue, [], 5) == []
    assert recorder.requests == []


async def test_a_single_target_without_its_list_is_refused(client: AsyncClient, queue: str) -> None:
    await client.publish(queue, [b"a"])
    (delivery,) = await client.receive(queue)

    for wrong in (delivery, delivery.receipt, [7]):
        with pytest.raises(InvalidArgument):
            await client.ack(queue, wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"wait_seconds": 21}, {"lease_seconds": 0}])
async def test_what_the_server_refuses_is_raised_with_its_reason(
    client: AsyncClient, queue: str, wrong: dict[str, int]
) -> None:
    with pytest.raises(PenstockError, match=next(iter(wrong))) as caught:
        await client.receive(queue, **wrong)  # type: ignore[arg-type]
    assert caught.value.code == "invalid_argument"


async def test_a_subscription_that_is_not_there_is_named(client: AsyncClient, queue: str) -> None:
    with pytest.raises(SubscriptionNotFound, match="nobody"):
        await client.receive(queue, subscription="nobody")


async def test_a_failed_message_becomes_a_dead_letter_and_is_replayed_or_discarded(
    client: AsyncClient, queue: str
) -> None:
    # Given
    await client.alter_subscription(queue, "default", max_deliveries=1, backoff=Backoff())
    published = await client.publish(queue, [b"a", b"b", b"c"])
    await client.nack(queue, await client.receive(queue, limit=3), reason="broken")

    # When
    letters = await client.dead_letters(queue)

    # Then
    assert [letter.body for letter in letters] == [b"a", b"b", b"c"]
    letter = letters[0].dead_letter
    assert letter is not None
    assert (letter.queue, letter.subscription, letter.reason) == (queue, "default", "broken")
    assert (letter.index, letter.deliveries) == (0, 1)
    assert letter.failed_at.tzinfo is not None

    assert await client.replay(queue, [published[0].id]) == 1
    assert [one.body for one in await client.receive(queue, limit=10)] == [b"a"]
    assert await client.discard(queue) == 2
    assert await client.dead_letters(queue) == []
