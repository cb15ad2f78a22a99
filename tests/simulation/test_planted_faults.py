"""The simulator finds the bugs it was made for: each is planted here, and must show."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import msgspec
import pytest

from penstock.core import machine as machine_module
from penstock.core.events import Published
from penstock.core.lease import Leases
from penstock.core.machine import Machine, Place
from penstock.core.request_keys import RequestKeys
from penstock.core.subscription import Subscription
from penstock.storage.answers import Done
from penstock.storage.wal import record
from penstock.storage.wal.store import WalStore
from tests.simulation import files
from tests.simulation.committer import InlineCommitter
from tests.simulation.runner import Failure, run_seed
from tests.simulation.simulation import Plan

SEEDS = 200

# What clients are told must be enough to find them, without a look at the state of the store.
CLIENTS_ONLY = Plan(memory_share=0, compares_state=False)


def first_failure(plan: Plan, invariant: str | None = None) -> Failure:
    """Of any invariant, or of this one. Fails the test when there is none."""
    for seed in range(SEEDS):
        failure = run_seed(seed, plan)
        if failure is not None and invariant in (None, failure.invariant):
            return failure
    pytest.fail(f"{SEEDS} histories did not show the fault")


def at_every_start(change: Callable[[Subscription], None]) -> Plan:
    """A plan whose store comes out of recovery with its subscriptions changed."""

    def after_open(store: WalStore) -> None:
        for subscription in store.machine.subscriptions.values():
            change(subscription)

    return replace(CLIENTS_ONLY, after_open=after_open)


def test_a_sync_that_does_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a disk that says it has synced and has not
    monkeypatch.setattr(files._Inode, "sync", lambda inode: None)

    # Then what was promised is found to be gone
    first_failure(CLIENTS_ONLY)


def test_an_answer_before_the_write_is_found() -> None:
    # Given a store that answers at once and writes later
    class HastyCommitter(InlineCommitter):
        def call_when_committed(self, done: Done) -> None:
            super().call_when_committed(lambda error: None)
            done(None)

    # Then answers turn out to have been false
    first_failure(replace(CLIENTS_ONLY, committer=HastyCommitter))


def test_an_epoch_that_is_used_again_is_found() -> None:
    # Given a recovery that begins to count epochs anew
    def restart(subscription: Subscription) -> None:
        subscription.epoch = 0

    # Then two deliveries have the same receipt
    failure = first_failure(at_every_start(restart))
    assert failure.invariant in {"receipt used twice", "epoch went back"}, failure


def test_holds_that_are_dropped_at_recovery_are_found() -> None:
    # Given a recovery that takes everything for released
    def release(subscription: Subscription) -> None:
        if subscription.parents:
            subscription.open(0, subscription.queue.next)

    # Then a subscription gets what it must wait for
    assert first_failure(at_every_start(release)).invariant == "dependency"


def test_a_delivery_count_that_is_lost_is_found() -> None:
    # Given a recovery that forgets how often a message was delivered
    def forget(subscription: Subscription) -> None:
        subscription.leases = Leases(
            {
                index: msgspec.structs.replace(lease, deliveries=0)
                for index, lease in subscription.leases.by_index().items()
            }
        )
        for index, tried in subscription.attempts.items():
            subscription.attempts[index] = tried._replace(deliveries=0)

    # Then the count goes back
    assert first_failure(at_every_start(forget)).invariant == "delivery count went back"


def test_acks_that_are_forgotten_at_recovery_are_found() -> None:
    # Given a recovery that knows of no ack but those below the floor
    def forget(subscription: Subscription) -> None:
        if subscription.config.filter is not None:
            return
        for start, stop in list(subscription.settled):
            if start > subscription.floor:
                subscription.settled.discard(start, stop)
                subscription.settled_total -= stop - start
                for index in range(start, stop):
                    subscription._make_ready(index)

    # Then a message comes again after its ack
    first_failure(at_every_start(forget), "delivered after its ack")


def test_events_that_a_recovery_forgets_are_found() -> None:
    # Given a recovery that drops what happened and was not told yet
    def after_open(store: WalStore) -> None:
        store.machine.untold.clear()

    # Then a row is missing
    failure = first_failure(replace(CLIENTS_ONLY, after_open=after_open))
    assert failure.invariant == "told once", failure


def test_events_that_are_told_twice_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a machine for which what was told is still to be told
    def forget_nothing(machine: Machine, event: Published, place: Place) -> None:
        queue = machine.queues_by_id[event.queue_id]
        queue.append(event, place.locator, place.length)

    monkeypatch.setitem(machine_module._APPLY, Published, forget_nothing)

    # Then a row comes again
    assert first_failure(CLIENTS_ONLY).invariant == "told once"


def test_a_key_that_a_recovery_forgets_is_found() -> None:
    # Given a recovery that does not know which requests were answered
    def after_open(store: WalStore) -> None:
        for queue in store.machine.queues.values():
            queue.requests = RequestKeys()

    # Then a publish that is tried again is stored twice
    failure = first_failure(replace(CLIENTS_ONLY, after_open=after_open))
    assert failure.invariant == "stored twice", failure


def test_a_torn_record_that_is_taken_for_good_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given records whose checksums always match
    def always_the_same(data: Iterable[int], value: int = 0) -> int:
        return 1

    monkeypatch.setattr(record, "crc32c", always_the_same)

    # Then something that nobody sent is found in the log
    first_failure(CLIENTS_ONLY)


def test_without_a_fault_the_same_plan_finds_nothing() -> None:
    # Given the plan of these tests, with nothing planted
    failures = [run_seed(seed, CLIENTS_ONLY) for seed in range(10)]

    # Then it finds nothing
    assert failures == [None] * 10
