from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from penstock.client.coalescer import Coalescer, Limits
from penstock.client.errors import ClientClosed, Unreachable
from penstock.errors import InvalidReceipt, PenstockError, QueueFull

WIDE = Limits(items=1000, size=1_000_000)


class Sender:
    """Answers each item with its double, refuses batches that hold a bad one."""

    def __init__(self, bad: dict[int, PenstockError] | None = None) -> None:
        self.batches: list[list[int]] = []
        self.bad = bad or {}
        self.started = asyncio.Event()
        self.gate: asyncio.Event | None = None

    async def __call__(self, items: list[int]) -> Sequence[int]:
        self.batches.append(items)
        self.started.set()
        if self.gate is not None:
            await self.gate.wait()
        for item in items:
            if item in self.bad:
                raise self.bad[item]
        return [2 * item for item in items]


async def test_calls_of_one_turn_become_one_request_and_each_gets_its_own_answers() -> None:
    sender = Sender()
    coalescer = Coalescer(sender, WIDE)

    answers = await asyncio.gather(*(coalescer.submit([n, n + 100], 1) for n in range(10)))

    assert len(sender.batches) == 1
    assert [list(answer) for answer in answers] == [[2 * n, 2 * n + 200] for n in range(10)]


async def test_calls_during_a_request_wait_for_it_and_go_together_in_their_order() -> None:
    sender = Sender()
    sender.gate = asyncio.Event()
    coalescer = Coalescer(sender, WIDE)
    first = coalescer.submit([1], 1)
    await sender.started.wait()

    later = [coalescer.submit([n], 1) for n in (2, 3, 4)]
    await asyncio.sleep(0)
    sender.gate.set()
    await asyncio.gather(first, *later)

    assert sender.batches == [[1], [2, 3, 4]]


async def test_a_call_in_another_loop_is_refused_and_not_sent_even_while_others_wait() -> None:
    sender = Sender()
    sender.gate = asyncio.Event()
    coalescer = Coalescer(sender, WIDE)
    first = coalescer.submit([1], 1)
    await sender.started.wait()
    second = coalescer.submit([2], 1)

    async def elsewhere() -> None:
        coalescer.submit([3], 1)

    with pytest.raises(ClientClosed, match="another event loop"):
        await asyncio.to_thread(asyncio.run, elsewhere())
    sender.gate.set()
    await asyncio.gather(first, second)

    assert sender.batches == [[1], [2]]


async def test_callers_that_were_just_answered_belong_to_the_next_request() -> None:
    sender = Sender()
    coalescer = Coalescer(sender, WIDE)

    async def call_often(number: int) -> None:
        for _ in range(5):
            await coalescer.submit([number], 1)

    await asyncio.gather(*(call_often(n) for n in range(32)))

    assert [len(batch) for batch in sender.batches] == [32] * 5


async def test_a_request_never_exceeds_the_limits() -> None:
    sender = Sender()
    by_items = Coalescer(sender, Limits(items=3, size=1000))
    await asyncio.gather(*(by_items.submit([n], 1) for n in range(7)))
    assert [len(batch) for batch in sender.batches] == [3, 3, 1]

    sender.batches.clear()
    by_size = Coalescer(sender, Limits(items=1000, size=100))
    await asyncio.gather(*(by_size.submit([n], 40) for n in range(5)))
    assert [len(batch) for batch in sender.batches] == [2, 2, 1]


async def test_a_call_larger_than_the_limits_goes_alone_and_whole() -> None:
    sender = Sender()
    coalescer = Coalescer(sender, Limits(items=3, size=1000))

    await asyncio.gather(
        coalescer.submit([1], 1), coalescer.submit([2, 3, 4, 5, 6], 1), coalescer.submit([7], 1)
    )

    assert sender.batches == [[1], [2, 3, 4, 5, 6], [7]]


async def test_with_a_linger_calls_of_several_turns_go_together() -> None:
    sender = Sender()
    coalescer = Coalescer(sender, Limits(items=1000, size=1000, linger_seconds=0.05))

    first = coalescer.submit([1], 1)
    for _ in range(5):
        await asyncio.sleep(0)
    await asyncio.gather(first, coalescer.submit([2], 1))

    assert sender.batches == [[1, 2]]


@pytest.mark.parametrize("error", [InvalidReceipt("bad"), QueueFull("full")])
async def test_a_refusal_that_one_call_caused_reaches_that_call_alone(
    error: PenstockError,
) -> None:
    sender = Sender({2: error})
    coalescer = Coalescer(sender, WIDE)

    answers = await asyncio.gather(
        *(coalescer.submit([n], 1) for n in (1, 2, 3)), return_exceptions=True
    )

    assert answers[0] == [2]
    assert isinstance(answers[1], type(error))
    assert answers[2] == [6]
    assert sender.batches == [[1, 2, 3], [1], [2], [3]]


async def test_an_error_of_the_whole_request_reaches_every_caller_as_its_own_object() -> None:
    error = Unreachable("gone")
    error.add_note("request id: x")
    sender = Sender({1: error})
    coalescer = Coalescer(sender, WIDE)

    first, second = await asyncio.gather(
        coalescer.submit([1], 1), coalescer.submit([2], 1), return_exceptions=True
    )

    assert len(sender.batches) == 1
    assert isinstance(first, Unreachable)
    assert isinstance(second, Unreachable)
    assert first is not second
    assert str(second) == "gone"
    assert second.__notes__ == ["request id: x"]


async def test_a_call_that_was_cancelled_before_it_was_sent_is_not_sent() -> None:
    sender = Sender()
    coalescer = Coalescer(sender, WIDE)

    dropped = coalescer.submit([1], 1)
    kept = coalescer.submit([2], 1)
    dropped.cancel()

    assert await kept == [4]
    assert sender.batches == [[2]]


async def test_a_caller_that_gives_up_does_not_harm_the_others() -> None:
    sender = Sender()
    sender.gate = asyncio.Event()
    coalescer = Coalescer(sender, WIDE)
    calls = [coalescer.submit([n], 1) for n in (1, 2)]
    await sender.started.wait()

    calls[0].cancel()
    sender.gate.set()

    assert await calls[1] == [4]


async def test_close_answers_what_was_submitted_and_takes_no_more() -> None:
    sender = Sender()
    coalescer = Coalescer(sender, Limits(items=1, size=1000, linger_seconds=60))
    calls = [coalescer.submit([n], 1) for n in (1, 2)]

    await asyncio.wait_for(coalescer.close(), 5)

    assert [await call for call in calls] == [[2], [4]]
    with pytest.raises(ClientClosed):
        coalescer.submit([3], 1)
