"""A document that reaches MongoDB after Redis was wiped and rebuilt from what MongoDB had."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.broker import Broker
from penstock.errors import StoreUnavailable
from penstock.storage.mongo.archive import Archive
from penstock.storage.mongo.store import ArchivedStore
from tests.mongo.conftest import Addresses, Open


async def test_one_in_whose_place_others_were_published_comes_back_and_so_do_they(
    broker: Broker, addresses: Addresses, database: Any
) -> None:
    # Given a message whose document came after the rebuilding
    await broker.publish("jobs", [b"a"])
    (late,) = await broker.publish("jobs", [b"late"])
    document = await database["jobs"].find_one_and_delete({"_id": late.id})
    await addresses.wipe_redis()
    assert [m.body for m in await broker.read("jobs")] == [b"a"]
    await database["jobs"].insert_one(document)
    # When others are published, the first of them in its place
    with pytest.raises(StoreUnavailable, match="was rebuilt"):
        await broker.publish("jobs", [b"b", b"c"], idempotency_key="k")
    # Then it is there again, and they can be published, each at least once
    await broker.publish("jobs", [b"b", b"c"], idempotency_key="k")
    found = await broker.read("jobs")
    assert found[1].id == late.id
    assert {m.body for m in found} == {b"a", b"late", b"b", b"c"}


async def test_one_that_was_answered_is_put_back_even_if_nothing_else_happens(
    store: ArchivedStore,
    broker: Broker,
    addresses: Addresses,
    open_server: Open,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given a publish that Redis has, and whose document is on its way
    other = await open_server()
    await broker.publish("jobs", [b"a"])
    is_under_way, may_go_on = asyncio.Event(), asyncio.Event()
    insert = Archive.insert

    async def slow_insert(self: Archive, queue: str, documents: Any) -> None:
        is_under_way.set()
        await may_go_on.wait()
        await insert(self, queue, documents)

    monkeypatch.setattr(Archive, "insert", slow_insert)
    publishing = asyncio.create_task(broker.publish("jobs", [b"late"]))
    await is_under_way.wait()
    # When Redis is wiped and another server rebuilds it before the document is there
    await addresses.wipe_redis()
    await other.recover()
    may_go_on.set()
    (late,) = await publishing
    # Then the server that has answered for it notices, as part of its regular work
    await store.check_answered()
    assert [m.id for m in await broker.read("jobs", start=1)] == [late.id]
