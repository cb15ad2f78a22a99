"""Random histories: Redis and the memory backend must give the same answers, step for step."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import msgspec
import pytest

from penstock.broker import Broker
from penstock.core.config import QueueConfig
from penstock.core.lifecycle import runs_in
from penstock.core.message import Delivery, Message, NewMessage
from penstock.core.stats import QueueStats
from penstock.errors import PenstockError, StorageError
from penstock.storage import base
from penstock.storage.memory import MemoryStore
from penstock.storage.redis.store import RedisStore
from tests.contract.clock import ManualClock

QUEUE = "jobs"
EVENTS = "jobs-events"
READERS = ("default", "reds", "after", "last", "plain")
STEPS = 120
# More of them find more: PENSTOCK_SEEDS=100-300.
_FIRST, _, _LAST = os.environ.get("PENSTOCK_SEEDS", "0-10").partition("-")
SEEDS = range(int(_FIRST), int(_LAST))

CONFIGS = (
    QueueConfig(),
    QueueConfig(fifo=True),
    QueueConfig(fifo=True, retention_messages=5, message_ttl_seconds=60),
    QueueConfig(retention_seconds=40, retain_unsettled=False, dedup_window_seconds=20),
    QueueConfig(max_messages=30, max_bytes=300, retention_messages=10),
)


class Pair:
    """The same calls to both, and their answers side by side."""

    def __init__(self, memory: MemoryStore, redis: RedisStore, clock: ManualClock, rng: Random):
        self.stores = (memory, redis)
        self.brokers = (Broker(memory), Broker(redis))
        self.clock = clock
        self.rng = rng
        # What was delivered, as each of them knows it.
        self.given: dict[str, list[tuple[Delivery, Delivery]]] = {name: [] for name in READERS}
        self.ids: list[tuple[str, str]] = []
        # Whole receives, to be acked as they came; and whether there are plain messages alone.
        self.batches: list[tuple[str, list[Delivery], list[Delivery]]] = []
        self.is_plain = rng.random() < 0.5

    async def both(self, call: Callable[[Broker, int], Awaitable[Any]]) -> tuple[Any, Any]:
        return await _outcome(call, self.brokers[0], 0), await _outcome(call, self.brokers[1], 1)

    async def same(self, call: Callable[[Broker, int], Awaitable[Any]]) -> tuple[Any, Any]:
        one, other = await self.both(call)
        assert _seen(one) == _seen(other)
        return one, other

    async def same_stats(self) -> None:
        one, other = await self.both(_stats)
        assert _differences(one, other) == []

    async def same_events(self) -> None:
        """One row a message: which of them are told together is left open."""
        self.stores[0].submit()  # what a command that was refused has left for the next
        one, other = await self.both(_told)
        assert [row for row in one if row not in other] == []
        assert one == other


async def _stats(broker: Broker, at: int) -> list[QueueStats]:
    return [queue for queue in await broker.stats() if queue.name != EVENTS]


async def _told(broker: Broker, at: int) -> list[Any]:
    messages = await broker.read(EVENTS, 0, 10_000)
    rows = [
        (index, msgspec.structs.replace(run, start=0, stop=0))
        for message in messages
        for run in runs_in(message.body)
        for index in range(run.start, run.stop)
    ]
    return sorted(rows, key=repr)


async def _outcome(call: Callable[[Broker, int], Awaitable[Any]], broker: Broker, at: int) -> Any:
    """The answer, or the kind of error. A store that cannot answer says nothing to compare."""
    try:
        return await call(broker, at)
    except StorageError:
        raise
    except PenstockError as exc:
        return type(exc)


def _seen(answer: Any) -> Any:
    """What of an answer is the same in both: not ids and epochs, which each makes up itself."""
    if isinstance(answer, Delivery):
        return (
            *_seen_message(answer),
            answer.deliveries,
            answer.deadline_ns,
        )
    if isinstance(answer, Message):
        return _seen_message(answer)
    if isinstance(answer, list):
        return [_seen(one) for one in answer]
    return answer


def _seen_message(message: Message) -> tuple[Any, ...]:
    return (message.index, message.body, message.created_at_ns, message.dead_letter)


def _differences(one: list[QueueStats], other: list[QueueStats]) -> list[str]:
    """By name, what memory says and what Redis says."""
    found = []
    assert [queue.name for queue in one] == [queue.name for queue in other]
    for queues in zip(one, other, strict=True):
        parts: list[tuple[Any, Any]] = [queues]
        parts += zip(*(queue.subscriptions for queue in queues), strict=True)
        for a, b in parts:
            found += [
                f"{queues[0].name} {a.name} {field}: {getattr(a, field)} != {getattr(b, field)}"
                for field in a.__struct_fields__
                if field != "subscriptions" and getattr(a, field) != getattr(b, field)
            ]
    return found


async def _publish(pair: Pair) -> None:
    rng = pair.rng
    delay, ttl = rng.randrange(20), rng.randrange(1, 40)
    batch = [
        NewMessage(
            body=b"%d" % rng.randrange(1000),
            topic=rng.choice((None, "red", "blue")),
            priority=rng.choice((0, 0, 0, 0, 3, 9)),
            not_before=pair.clock.later(delay) if rng.random() < 0.15 else None,
            expires_at=pair.clock.later(delay + ttl) if rng.random() < 0.1 else None,
            group_key=rng.choice((None, None, "a", "b")),
            dedup_key=rng.choice((None, None, None, "x", "y")),
        )
        if rng.random() < 0.6 and not pair.is_plain
        else b"plain"
        for _ in range(rng.randrange(1, 6))
    ]
    one, other = await pair.both(lambda broker, at: broker.publish(QUEUE, batch))
    if isinstance(one, type):
        assert one is other
        return
    assert [(p.index, p.duplicate) for p in one] == [(p.index, p.duplicate) for p in other]
    pair.ids += [(a.id, b.id) for a, b in zip(one, other, strict=True)]


async def _receive(pair: Pair) -> None:
    name, limit = pair.rng.choice(READERS), pair.rng.randrange(1, 8)
    lease = pair.rng.choice((None, None, 3.0, 100.0))
    # A bound that is never reached: where it is, the two measure in ways of their own.
    most = pair.rng.choice((None, 2**24))
    one, other = await pair.same(
        lambda broker, at: broker.receive(
            QUEUE, subscription=name, limit=limit, lease_seconds=lease, most_bytes=most
        )
    )
    if not isinstance(one, type):
        pair.given[name] += zip(one, other, strict=True)
        pair.batches.append((name, one, other))


async def _ack_batch(pair: Pair) -> None:
    if pair.batches:
        # The oldest as a rule, else any.
        at = 0 if pair.rng.random() < 0.6 else pair.rng.randrange(len(pair.batches))
        name, *batches = pair.batches.pop(at)
        await pair.same(lambda broker, at: broker.ack(QUEUE, batches[at], name))


async def _poll(pair: Pair) -> None:
    name = pair.rng.choice(READERS)
    start, count = pair.rng.randrange(0, 60), pair.rng.randrange(1, 10)
    one, other = await pair.same(
        lambda broker, at: broker.poll(QUEUE, name, start=start, count=count)
    )
    if not isinstance(one, type):
        pair.given[name] += zip(one, other, strict=True)


async def _ask_again(pair: Pair) -> None:
    name, index = pair.rng.choice(READERS), pair.rng.randrange(0, 60)
    one, other = await pair.same(lambda broker, at: broker.ask_again(QUEUE, name, index))
    if not isinstance(one, type):
        pair.given[name].append((one, other))


async def _settle(pair: Pair) -> None:
    rng = pair.rng
    name = rng.choice(READERS)
    given = pair.given[name]
    some = [given.pop(rng.randrange(len(given))) for _ in range(min(len(given), rng.randrange(6)))]
    if rng.random() < 0.2:
        given += some  # to be settled once more
    targets: list[tuple[Any, Any]] = [*some]
    if pair.ids and rng.random() < 0.3:
        targets.append(rng.choice(pair.ids))
    kind, delay = rng.choice(("ack", "ack", "nack", "extend")), rng.choice((None, 0.0, 7.0))
    reason = rng.choice(("", "broken"))

    def settlement(at: int) -> base.Settlement:
        own = [target[at] for target in targets]
        if kind == "ack":
            return base.Ack(targets=own)
        if kind == "nack":
            return base.Nack(targets=own, delay_seconds=delay, reason=reason)
        return base.Extend(targets=own, seconds=11, further=delay == 7.0)

    await pair.same(lambda broker, at: broker.settle(QUEUE, [settlement(at)], name))


async def _ack_up_to(pair: Pair) -> None:
    name, index = pair.rng.choice(READERS), pair.rng.randrange(0, 40)
    await pair.same(lambda broker, at: broker.ack_up_to(QUEUE, index, name))


async def _seek(pair: Pair) -> None:
    name = pair.rng.choice(READERS)
    start = pair.rng.choice(("earliest", "latest", pair.rng.randrange(60), pair.clock.later(-20)))
    await pair.same(lambda broker, at: broker.seek(QUEUE, start, name))


async def _redrive(pair: Pair) -> None:
    rng = pair.rng
    some = None if rng.random() < 0.5 or not pair.ids else rng.sample(pair.ids, 1)
    is_replay = rng.random() < 0.7

    async def call(broker: Broker, at: int) -> int:
        ids = None if some is None else [pair_of_ids[at] for pair_of_ids in some]
        return await (broker.replay(QUEUE, ids) if is_replay else broker.discard(QUEUE, ids))

    await pair.same(call)


async def _release(pair: Pair) -> None:
    name = pair.rng.choice(("after", "last", "default"))
    held, _ = await pair.same(lambda broker, at: broker.held(QUEUE, name, 3))
    if isinstance(held, list):
        indexes = held or [pair.rng.randrange(40)]
        await pair.same(lambda broker, at: broker.release(QUEUE, name, indexes))


async def _pass_time(pair: Pair) -> None:
    pair.clock.advance(pair.rng.choice((0.5, 3, 10, 31)))
    if pair.rng.random() < 0.7:
        for store in pair.stores:
            await store.tick()


async def _look(pair: Pair) -> None:
    name, settled = pair.rng.choice(READERS), pair.rng.choice((None, True, False))
    await pair.same(lambda broker, at: broker.read(QUEUE, 0, 20))
    await pair.same(_letters)

    async def view(broker: Broker, at: int) -> list[Any]:
        found = await broker.view(QUEUE, name, settled=settled, limit=10)
        return [(*_seen_message(v), v.is_settled, v.deliveries, v.leased_until_ns) for v in found]

    await pair.same(view)


async def _letters(broker: Broker, at: int) -> list[Any]:
    """Of messages that fail at one moment the order is left open."""
    letters = [_seen_message(letter)[1:] for letter in await broker.dead_letters(QUEUE)]
    return sorted(letters, key=repr)


async def _redefine(pair: Pair) -> None:
    rng = pair.rng
    kind, name = rng.randrange(6), rng.choice(READERS)
    after = rng.choice(([], ["default"], ["reds"], ["default", "reds"]))

    async def call(broker: Broker, at: int) -> int | None:
        if kind == 0:
            await broker.alter_subscription(QUEUE, name, paused=rng_paused)
        elif kind == 1:
            await broker.alter_subscription(QUEUE, "last", after=after)
        elif kind == 2:
            await broker.alter_subscription(QUEUE, name, max_deliveries=2, on_dead_parent=policy)
        elif kind == 3:
            await broker.delete_subscription(QUEUE, "plain")
            await broker.create_subscription(QUEUE, "plain", start=position)
        elif kind == 4:
            await broker.delete_subscription(QUEUE, "last")
            await broker.create_subscription(
                QUEUE, "last", after=["reds"], filter='topic != "blue"', start=position
            )
        else:
            return await broker.purge_queue(QUEUE)
        return None

    rng_paused = rng.random() < 0.3
    policy = rng.choice(("hold", "cascade", "ignore"))
    position = rng.choice(("earliest", "latest"))
    if kind != 5 or rng.random() < 0.3:
        await pair.same(call)
        gone = {3: "plain", 4: "last"}.get(kind)
        if gone is not None:
            pair.given[gone] = []
            pair.batches = [batch for batch in pair.batches if batch[0] != gone]


MOVES = (
    *([_publish] * 6),
    *([_receive] * 6),
    *([_settle] * 4),
    *([_ack_batch] * 4),
    *([_pass_time] * 2),
    *(_poll, _ask_again, _ack_up_to, _seek, _redrive, _release, _look, _redefine),
)


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_random_history_is_the_same_on_redis_and_in_memory(address: str, seed: int) -> None:
    await _compare(address, seed, CONFIGS[seed % len(CONFIGS)])


@pytest.mark.parametrize("seed", SEEDS[: len(CONFIGS)] if len(SEEDS) <= 10 else SEEDS)
async def test_what_is_told_of_a_random_history_is_the_same(address: str, seed: int) -> None:
    config = msgspec.structs.replace(CONFIGS[seed % len(CONFIGS)], events=True)
    await _compare(address, seed, config)


async def _compare(address: str, seed: int, config: QueueConfig) -> None:
    rng, clock = Random(seed), ManualClock()
    memory = MemoryStore(clock=clock, rng=Random(seed))
    redis = await RedisStore.open(address, clock=clock, rng=Random(seed))
    pair = Pair(memory, redis, clock, rng)
    # Given a queue with subscriptions of every kind
    await pair.same(lambda broker, at: broker.create_queue(QUEUE, config))
    await pair.same(
        lambda broker, at: broker.create_subscription(
            QUEUE, "reds", filter='topic == "red"', max_deliveries=2
        )
    )
    for name, settings in (
        ("after", {"after": ["default"], "on_dead_parent": "cascade"}),
        ("last", {"after": ["default", "reds"]}),
        ("plain", {"max_deliveries": 3, "max_in_flight": 7}),
    ):
        await pair.same(
            lambda broker, at, n=name, s=settings: broker.create_subscription(QUEUE, n, **s)  # type: ignore[misc]
        )
    known = None
    # When anything happens to it, the answers and the figures are the same
    try:
        for step in range(STEPS):
            move = rng.choice(MOVES)
            clock.advance(0.000_001)  # so that each step has a time of its own
            try:
                await move(pair)
                await pair.same_stats()
                # And an archive needs to read only what has changed
                known = await redis.snapshot(QUEUE, known)
                assert known == await redis.snapshot(QUEUE)
                if config.events:
                    await pair.same_events()
            except AssertionError as exc:
                raise AssertionError(f"seed {seed}, step {step}, {move.__name__}: {exc}") from exc
    finally:
        await memory.close()
        await redis.close()
