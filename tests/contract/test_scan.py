"""Reading in bulk gives the same messages as reading one by one."""

from __future__ import annotations

import pytest

from penstock.broker import Broker
from penstock.core.message import PLAIN, Envelope, NewMessage, message_id
from penstock.errors import QueueNotFound
from penstock.storage.block import Chunk
from tests.contract.world import World

ALL = 2**53


def rows(chunk: Chunk) -> list[tuple[int, str, bytes, Envelope]]:
    return [
        (
            block.first + at,
            message_id(block.created_ns, block.origin + at, chunk.salt),
            body,
            PLAIN if block.heads is None else Envelope.decode(block.heads[at]),
        )
        for block in chunk.blocks
        for at, body in enumerate(block.each_body())
    ]


async def expected(broker: Broker, queue: str) -> list[tuple[int, str, bytes, Envelope]]:
    return [(m.index, m.id, m.body, m.envelope) for m in await broker.read(queue, 0, 1000)]


async def test_a_scan_gives_what_a_read_gives(broker: Broker, queue: str) -> None:
    await broker.publish(queue, [b"a", b"", b"ccc"])
    await broker.publish(queue, [NewMessage(body=b"d", topic="t", attributes={"k": "v"}), b"e"])
    await broker.publish(queue, [b"f"])

    chunk = await broker.scan(queue, 0, ALL)

    assert rows(chunk) == await expected(broker, queue)
    assert chunk.next == 6


async def test_a_scan_of_a_range_cuts_publishes_in_the_middle(broker: Broker, queue: str) -> None:
    await broker.publish(queue, [NewMessage(body=b"%d" % n, topic=f"t{n}") for n in range(5)])
    await broker.publish(queue, [b"%d" % n for n in range(5, 9)])

    chunk = await broker.scan(queue, 3, 7)

    assert rows(chunk) == (await expected(broker, queue))[3:7]
    assert chunk.next == 7


async def test_a_scan_ends_early_by_bytes_and_goes_on_from_there(
    broker: Broker, queue: str
) -> None:
    for number in range(10):
        await broker.publish(queue, [b"%d" % number * 1000] * 2)
    found, at, chunks = [], 0, 0

    while at < 20:
        chunk = await broker.scan(queue, at, ALL, most_bytes=5000)
        assert chunk.next > at
        found += rows(chunk)
        at, chunks = chunk.next, chunks + 1

    assert found == await expected(broker, queue)
    assert chunks > 2


async def test_a_scan_goes_over_segments_and_what_lies_between(broker: Broker, queue: str) -> None:
    await broker.create_queue("other")
    for number in range(30):
        await broker.publish(queue, [b"%d" % number * 300] * 4)
        await broker.publish("other", [b"x" * (70_000 if number == 20 else 5000)])
    await broker.ack_up_to(queue, 50)

    chunk = await broker.scan(queue, 0, ALL)

    assert rows(chunk) == await expected(broker, queue)
    assert len(rows(chunk)) == 120


async def test_a_scan_begins_where_retention_has_cut(world: World, broker: Broker) -> None:
    await broker.create_queue("jobs", retention_messages=3)
    await broker.publish("jobs", [b"a", b"b", b"c", b"d"])
    await broker.publish("jobs", [b"e"])
    await broker.ack_up_to("jobs", 5)
    await world.pass_time(1)

    assert rows(await broker.scan("jobs", 0, ALL)) == await expected(broker, "jobs")
    assert (await broker.scan("jobs", 0, 1)).blocks == []
    assert (await broker.scan("jobs", 9, ALL)).blocks == []


async def test_dead_letters_are_scanned_with_the_ids_they_had(broker: Broker, queue: str) -> None:
    published = await broker.publish(queue, [b"a", b"b", b"c"])
    await broker.alter_subscription(queue, "default", max_deliveries=1)
    deliveries = await broker.receive(queue, limit=3)
    await broker.nack(queue, deliveries[1:], reason="broken")

    chunk = await broker.scan(f"{queue}-dlq", 0, ALL)

    assert [row[:3] for row in rows(chunk)] == [
        (0, published[1].id, b"b"),
        (1, published[2].id, b"c"),
    ]
    assert [block.letter.reason for block in chunk.blocks if block.letter] == ["broken"] * 2


async def test_a_queue_of_the_same_name_is_known_for_another(broker: Broker, queue: str) -> None:
    before = await broker.scan(queue, 0, ALL)
    await broker.delete_queue(queue)
    with pytest.raises(QueueNotFound):
        await broker.scan(queue, 0, ALL)
    await broker.create_queue(queue)

    assert (await broker.scan(queue, 0, ALL)).salt != before.salt


async def test_older_messages_that_are_kept_aside_are_scanned_first(
    world: World, broker: Broker
) -> None:
    await broker.create_queue("jobs", retention_messages=2)
    await broker.publish("jobs", [b"%d" % n for n in range(10)])
    [_, late, *others] = await broker.receive("jobs", limit=10)
    await broker.ack("jobs", others)
    await world.pass_time(1)
    assert (await broker.queue_stats("jobs")).first_index == 8

    older = await broker.scan("jobs", 0, ALL)
    rest = await broker.scan("jobs", older.next, ALL)

    assert [row[2] for row in rows(older)] == [b"0", late.body]
    assert [row[0] for row in rows(older)] == [0, 1]
    assert [row[0] for row in rows(rest)] == [8, 9]
