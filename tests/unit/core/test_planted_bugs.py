"""The random histories find bugs: each of these, planted on purpose, within a few seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import pytest

from penstock.core.feed import Feed
from penstock.core.groups import Groups
from penstock.core.lease import Attempts
from penstock.core.queue import Queue
from penstock.core.runs import Run
from penstock.core.subscription import Subscription
from tests.unit.core.history import CONFIGS, History
from tests.unit.core.steps import random_steps

SEEDS = 150
STEPS = 60

Plant = Callable[[pytest.MonkeyPatch], None]


def forget_what_others_hold_back(patch: pytest.MonkeyPatch) -> None:
    def passed(self: Subscription, start: int, stop: int, *, dead_too: bool) -> Iterator[Run]:
        return iter([(start, stop)])

    patch.setattr(Subscription, "passed", passed)


def forget_the_delivery_count_when_a_lease_ends(patch: pytest.MonkeyPatch) -> None:
    def expire_leases(self: Subscription, runs: list[Run]) -> None:
        for run in runs:
            for start, stop, lease in self.leases.take(*run):
                for index in range(start, stop):
                    self.attempts[index] = Attempts(0, lease.epoch, "")
                    self._make_ready(index)

    patch.setattr(Subscription, "expire_leases", expire_leases)


def give_an_acked_message_of_a_group_again(patch: pytest.MonkeyPatch) -> None:
    forget = Subscription._forget

    def in_the_wrong_order(self: Subscription, start: int, stop: int) -> None:
        groups, self.groups = self.groups, Groups()
        forget(self, start, stop)
        self.groups = groups
        for index in self.feed.special_within(start, stop):
            group = self.queue.feeds.special[index].group
            if group is not None:
                head = self.groups.leave(group, index)
                if head is not None:
                    self._admit(head)

    patch.setattr(Subscription, "_forget", in_the_wrong_order)


def count_old_matches_for_everybody(patch: pytest.MonkeyPatch) -> None:
    def backfill(self: Queue, feed: Feed, since: int, matches: list[Run]) -> None:
        if since < feed.since:
            feed.backfill(since, matches, self.feeds.everything)

    patch.setattr(Queue, "backfill", backfill)


def drop_what_is_still_needed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Queue, "is_needed", lambda self, index: False)


def ignore_priorities(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Subscription, "priority_of", lambda self, index: 0)


@pytest.mark.parametrize(
    "plant",
    [
        forget_what_others_hold_back,
        forget_the_delivery_count_when_a_lease_ends,
        give_an_acked_message_of_a_group_again,
        count_old_matches_for_everybody,
        drop_what_is_still_needed,
        ignore_priorities,
    ],
)
def test_a_planted_bug_is_found(monkeypatch: pytest.MonkeyPatch, plant: Plant) -> None:
    plant(monkeypatch)
    assert any(_fails(seed) for seed in range(SEEDS))


def _fails(seed: int) -> bool:
    rng = Random(seed)
    history = History(rng.choice(CONFIGS))
    try:
        for step in random_steps(rng, STEPS):
            history.do(step)
    except (AssertionError, LookupError):
        # A broken state shows itself in a check, or in something that is not where it must be.
        return True
    return False
