"""What the servers of a store share besides messages."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.storage.local import LocalShared
from penstock.storage.shared import Document, Limit, Shared
from tests.contract.clock import ManualClock
from tests.contract.world import World


@pytest.fixture
def shared(world: World, clock: ManualClock, directory: Path) -> Shared:
    """As a server over this store has it."""
    if world.store.shared is not None:
        return world.store.shared
    return LocalShared(directory if world.backend.survives_restart else None, clock)


async def test_a_document_that_is_not_there_is_empty(shared: Shared) -> None:
    assert await shared.get("users") == Document(b"", "")
    assert await shared.get("users", "") is None
    assert await shared.get("users", "another") == Document(b"", "")


async def test_a_document_is_there_with_its_version_and_others_are_not(shared: Shared) -> None:
    version = await shared.put("users", b"\x00\xff", "")
    assert version
    assert await shared.get("users") == Document(b"\x00\xff", version)
    assert await shared.get("users", "") == Document(b"\x00\xff", version)
    assert await shared.get("users", version) is None
    assert await shared.get("other") == Document(b"", "")


async def test_only_the_version_that_is_there_is_replaced(shared: Shared) -> None:
    first = await shared.put("users", b"first", "")
    assert first
    assert await shared.put("users", b"too late", "") is None
    second = await shared.put("users", b"second", first)
    assert second not in (None, "", first)
    assert await shared.put("users", b"too late", first) is None
    assert await shared.put("users", b"out of nowhere", "another") is None
    assert await shared.get("users", first) == Document(b"second", second or "")


async def test_of_many_who_replace_it_at_once_one_does(shared: Shared) -> None:
    await shared.get("users")
    versions = await asyncio.gather(*(shared.put("users", b"%d" % n, "") for n in range(9)))
    (winner,) = [n for n, version in enumerate(versions) if version is not None]
    assert await shared.get("users") == Document(b"%d" % winner, versions[winner] or "")


@pytest.mark.over_restarts
async def test_a_document_is_there_after_a_restart(
    world: World, shared: Shared, clock: ManualClock, directory: Path
) -> None:
    await shared.put("users", b"alice", "")
    await world.restart()
    again = world.store.shared or LocalShared(directory, clock)
    document = await again.get("users")
    assert document is not None
    assert document.content == b"alice"
    assert await again.put("users", b"bob", document.version)


async def test_requests_are_counted_by_the_second_up_to_the_first_limit_that_is_reached(
    shared: Shared, clock: ManualClock
) -> None:
    user, push = Limit("user:1", 3), Limit("push", 2)
    over = [await shared.over_limit([user, push]) for _ in range(4)]
    # The fourth is too many for the user, so that no push was counted for it
    assert over == [None, None, push, user]
    assert await shared.over_limit([Limit("user:2", 3), Limit("pop", 2)]) is None
    clock.advance(0.9)
    assert await shared.over_limit([push]) == push
    clock.advance(0.1)
    assert [await shared.over_limit([user, push]) for _ in range(3)] == [None, None, push]
