from __future__ import annotations

import pytest

from penstock import errors
from penstock.broker import Broker
from penstock.errors import PenstockError, StorageClosed
from penstock.storage import base
from tests.contract.world import World

CODES = {
    "invalid_argument",
    "invalid_name",
    "invalid_filter",
    "invalid_receipt",
    "invalid_dependency",
    "message_too_large",
    "batch_too_large",
    "queue_not_found",
    "subscription_not_found",
    "message_not_found",
    "queue_exists",
    "subscription_exists",
    "queue_full",
    "reserved_queue",
    "not_leased",
    "not_held",
    "disk_full",
    "memory_full",
    "store_unavailable",
    "storage_failed",
    "storage_closed",
    "corrupt_log",
    "directory_locked",
    "newer_format",
    "unknown_backend",
}


def test_every_error_has_a_code_of_its_own_that_never_changes() -> None:
    kinds = [getattr(errors, name) for name in errors.__all__]
    leaves = [kind for kind in kinds if not kind.__subclasses__()]
    codes = [kind.code for kind in kinds]
    assert len(set(codes)) == len(codes)
    assert {kind.code for kind in leaves} >= CODES
    assert all(issubclass(kind, PenstockError) for kind in kinds)


async def test_an_error_says_what_to_do(broker: Broker, queue: str) -> None:
    with pytest.raises(PenstockError, match="create it first"):
        await broker.receive("none")
    with pytest.raises(PenstockError, match="it has: default"):
        await broker.receive(queue, subscription="none")


async def test_a_closed_store_refuses_everything(world: World, broker: Broker, queue: str) -> None:
    await broker.publish(queue, [b"a"])
    store = world.store
    await store.close()
    await store.close()
    for call in (
        store.receive(queue, "default", base.Next(limit=1)),
        store.names(),
        store.stats(),
        store.queue_stats(queue),
        store.read(queue, base.Span(start=0, limit=1)),
        store.wait(queue, "default", 1),
        Broker(store).publish(queue, [b"b"]),
        Broker(store).purge_queue(queue),
        Broker(store).ack_up_to(queue, 1),
        Broker(store).replay(queue),
    ):
        with pytest.raises(StorageClosed):
            await call
