"""The newest messages, kept in memory."""

from __future__ import annotations

import gc
from itertools import count
from pathlib import Path

from penstock.broker import Broker
from penstock.core.events import Published
from penstock.core.message import Envelope, NewMessage, encode_envelope
from penstock.storage.wal.codec import encode
from penstock.storage.wal.files import DiskFiles
from penstock.storage.wal.record_cache import RecordCache
from penstock.storage.wal.segment import position_of
from tests.faults.store import open_store


def published(first: int, body: bytes = b"a") -> Published:
    envelope = Envelope(topic="t")
    return Published(
        at_ns=1,
        queue_id=1,
        first=first,
        count=2,
        size=2 * len(body),
        envelopes=[envelope, envelope],
        bodies=[body, body],
        heads=[encode_envelope(envelope)] * 2,
    )


def put(cache: RecordCache, locator: int, event: Published) -> int:
    payload = b"".join(encode(event)[1])
    cache.put(locator, payload, event)
    return len(payload)


def bodies_at(cache: RecordCache, locator: int) -> list[bytes] | None:
    event = cache.get(locator)
    return None if event is None else list(event.bodies)


def test_a_record_is_the_same_whether_it_is_kept_as_an_event_or_as_bytes() -> None:
    cache = RecordCache(2**20)
    first = published(0, b"first")
    put(cache, 0, first)
    assert cache.get(0) is first
    # When many others come after it
    for number in range(1, 1000):
        put(cache, number, published(number))
    # Then it is made of its bytes again, once
    again = cache.get(0)
    assert again is not first
    assert again is not None
    assert (again.first, again.count, again.size) == (0, 2, first.size + 2 * len(b"\x81\xa1t\xa1t"))
    assert (list(again.bodies), again.envelopes) == ([b"first"] * 2, first.envelopes)
    assert cache.get(0) is again


def test_the_oldest_go_when_there_are_too_many_bytes() -> None:
    body = b"a" * 1000
    size = put(RecordCache(0), 0, published(0, body))
    cache = RecordCache(8 * size)  # of which half is for events
    for number in range(9):
        put(cache, number, published(number, body))
    kept = [number for number in range(9) if cache.get(number) is not None]
    assert kept == [5, 6, 7, 8]


def test_the_last_one_is_kept_whatever_its_size() -> None:
    cache = RecordCache(0)
    put(cache, 0, published(0))
    put(cache, 1, published(1, b"b" * 1000))
    assert cache.get(0) is None
    assert bodies_at(cache, 1) == [b"b" * 1000] * 2


def test_one_that_is_put_again_counts_once() -> None:
    body = b"a" * 1000
    size = put(RecordCache(0), 0, published(0, body))
    cache = RecordCache(4 * size)  # two as payloads, and two as events
    for _ in range(10):
        put(cache, 0, published(0, body))
    put(cache, 1, published(1, body))
    assert bodies_at(cache, 0) == bodies_at(cache, 1) == [body] * 2


def test_a_segment_is_forgotten_as_a_whole() -> None:
    cache = RecordCache(2**20)
    places = [position_of(segment, offset) for segment in (1, 2) for offset in (0, 500)]
    for number, place in enumerate(places):
        put(cache, place, published(number))
    cache.forget(1)
    assert [cache.get(place) is None for place in places] == [True, True, False, False]


async def test_messages_leave_next_to_nothing_for_the_garbage_collector(tmp_path: Path) -> None:
    # Given a store that has warmed up
    keys = map(str, count())
    async with Broker(await open_store(DiskFiles(tmp_path), cache_bytes=2**24)) as broker:
        await broker.create_queue("q")

        async def cycle(times: int) -> None:
            for _ in range(times):
                message = NewMessage(body=b"a", topic="t", priority=1, dedup_key=next(keys))
                await broker.publish("q", [message], idempotency_key=next(keys))
                await broker.receive("q", lease_seconds=600)

        await cycle(300)
        gc.collect()
        before = len(gc.get_objects())
        # When a thousand more are published with keys, and are in flight
        await cycle(1000)
        gc.collect()
        # Then there is no object for each of them that it would have to look at from now on
        assert len(gc.get_objects()) - before < 200
