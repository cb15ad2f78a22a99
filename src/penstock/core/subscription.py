"""A subscription: a named reader of one queue, with its own progress.

Progress is a cursor with exceptions. An unsettled message is in exactly one of these places:

- **ahead**: at or above the cursor of its lane (`cursors`); never delivered. A subscription that
  waits for others has no cursor: what is not yet `opened` is ahead, and is called *held*.
- **ready**: below the cursor and deliverable now: nacked, its lease expired, its delay over,
  released by the subscriptions it waited for, replayed, or passed over by a poll.
- **waiting**: for a time: the end of a delay, or of the backoff after a nack.
- **parked**: behind an earlier, unsettled message of its group.
- **leased**: in flight.

Everything else is **settled**. Only `Machine.apply` calls the methods that change state, live and
at recovery, so both arrive at the same state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from penstock.core.config import DEFAULT_SUBSCRIPTION, SubscriptionConfig
from penstock.core.counters import Counters
from penstock.core.deadlines import Deadlines
from penstock.core.feed import Feed
from penstock.core.groups import Groups
from penstock.core.lease import Attempts, Lease, Leases
from penstock.core.runs import Run, Runs, cut, runs_of
from penstock.core.schedule import Schedule

if TYPE_CHECKING:
    from penstock.core.queue import Queue

__all__ = ["Subscription"]

# More epochs than a gap in the history can hide: no segment holds that many events.
_LOST_EPOCHS = 2**32


class Subscription:
    """The state; see the module's docstring."""

    __slots__ = (
        "attempts",
        "base_total",
        "children",
        "config",
        "counters",
        "created_ns",
        "cursors",
        "dead",
        "deadlines",
        "epoch",
        "feed",
        "groups",
        "id",
        "last_ack_ns",
        "last_delivery_ns",
        "leases",
        "name",
        "news",
        "opened",
        "parents",
        "polled",
        "pulled",
        "queue",
        "ready",
        "secrets",
        "settled",
        "settled_total",
        "start",
        "waiting",
    )

    def __init__(
        self,
        *,
        id: int,
        name: str,
        config: SubscriptionConfig,
        queue: Queue,
        feed: Feed,
        start: int,
        created_ns: int,
    ) -> None:
        self.id = id
        self.name = name
        self.config = config
        self.queue = queue
        self.feed = feed
        self.created_ns = created_ns
        self.secrets: tuple[str, ...] = ()  # for signing callbacks, newest first
        self.parents: list[Subscription] = []
        self.children: list[Subscription] = []
        self.dead = Runs()  # dead-lettered here, and since then neither replayed nor sought back
        self.epoch = 0
        self.news = 0  # a part of `arrivals`; not stored, since nobody watches across a restart
        self.counters = Counters()
        self.last_delivery_ns: int | None = None
        self.last_ack_ns: int | None = None
        self.reset(start)

    def reset(self, start: int) -> None:
        """Settle everything below ``start`` and nothing from it on, with nothing in flight."""
        self.start = start
        self.cursors: dict[int, int] = {}  # by priority; the default is `start`
        self.polled = start  # a poll by index range never goes back below this
        self.pulled = start  # special messages below this index were admitted
        self.ready: dict[int, Runs] = {}
        self.waiting = Schedule()
        self.groups = Groups()
        self.leases = Leases()
        self.deadlines = Deadlines()
        self.attempts: dict[int, Attempts] = {}
        self.settled = Runs([(0, start)])
        self.settled_total = 0
        self.base_total = self.feed.total - self.feed.matched.count_within(start, self.queue.next)
        self.dead.discard(start, self.queue.next)
        self._close()

    def _close(self) -> None:
        """Hold everything that is unsettled, and dead letters, for when they are replayed."""
        self.opened = self.settled.copy()
        for run in self.dead:
            self.opened.discard(*run)

    def seek(self, index: int) -> None:
        """Start again from an index. Deliveries in flight are forgotten and their receipts void."""
        if index > self.floor:
            skipped = sum(b - a for a, b in self.unsettled_within(self.floor, index))
            self.counters.skipped += skipped
        arrivals = self.arrivals
        self.reset(index)
        if self.parents:
            self.parents_passed(index, self.queue.next)
        # What it counts from now on may be just as many.
        self.news += arrivals + 1 - self.arrivals
        for child in self.children:
            child.parents_passed(0, index)

    def start_over(self) -> None:
        """After a gap in the history, redeliver everything that is not known to be settled.

        What was in flight or waiting becomes ready. Delivery counts are kept; all receipts are
        void, including those of deliveries that were lost in the gap.
        """
        attempts = self.attempts | {
            index: Attempts(lease.deliveries, 0, lease.reason)
            for start, stop, lease in self.leases
            for index in range(start, stop)
        }
        opened = self.opened
        begin = min(self.floor, self.start)
        self.cursors = dict.fromkeys(self.feed.lanes, begin)
        self.polled = begin
        self.pulled = begin
        self.ready, self.waiting, self.groups = {}, Schedule(), Groups()
        # Empty while messages are admitted: `_admit` takes one with attempts to be ready already.
        self.leases, self.deadlines, self.attempts = Leases(), Deadlines(), {}
        self.epoch += _LOST_EPOCHS
        if self.parents:
            self._close()
            self.parents_passed(0, self.queue.next)
            for run in opened:
                self.open(*run)
        self._pull()
        self.attempts = {
            index: tried._replace(epoch=0)
            for index, tried in attempts.items()
            if not self.is_settled(index)
        }

    # Reading the state.

    @property
    def floor(self) -> int:
        """The lowest unsettled index, or the end of the queue. Every index below it is settled."""
        settled, matched = self.settled, self.feed.matched
        at = settled.next_gap(0)
        while True:
            following = matched.next(at)
            if following is None:
                return self.queue.next
            at = settled.next_gap(following)
            if at == following:
                return at

    @property
    def cursor(self) -> int:
        """The next index after everything that was delivered or passed over."""
        return max(self.polled, *self.cursors.values(), self.start)

    @property
    def unsettled(self) -> int:
        return self.feed.total - self.base_total - self.settled_total

    @property
    def arrivals(self) -> int:
        """Changes when messages become deliverable other than by what is done to their deliveries.

        They were published, are due, were released by others, were sought back, replayed, or their
        leases expired.
        """
        came = self.feed.total - self.base_total
        if self.parents:
            came = self.opened.count
        return came + self.counters.leases_expired + self.counters.replayed + self.news

    def is_settled(self, index: int) -> bool:
        """Also true for what the filter keeps out."""
        return index in self.settled or index not in self.feed.matched

    def unsettled_within(self, start: int, stop: int) -> Iterator[Run]:
        for matched in self.feed.matched.within(start, stop):
            yield from self.settled.outside(*matched)

    def settled_within(self, start: int, stop: int) -> Iterator[Run]:
        """Does not include what the filter keeps out."""
        for matched in self.feed.matched.within(start, stop):
            yield from self.settled.within(*matched)

    def passed(self, start: int, stop: int, *, dead_too: bool) -> Iterator[Run]:
        """Parts of ``[start, stop)`` that this subscription no longer holds back from others."""
        blocked = Runs(self.unsettled_within(start, stop))
        if not dead_too:
            for run in self.dead.within(start, stop):
                blocked.add(*run)
        return blocked.outside(start, stop)

    def held(self) -> Iterator[Run]:
        """What waits for other subscriptions, ascending."""
        if self.parents:
            for run in self.unsettled_within(self.floor, self.queue.next):
                yield from self.opened.outside(*run)

    def blockers(self, index: int) -> list[str]:
        """The subscriptions that a message still waits for; empty if it is not held."""
        if not self.parents or self.is_settled(index) or index in self.opened:
            return []
        dead_too = self.config.on_dead_parent == "ignore"
        return [
            parent.name
            for parent in self.parents
            if not any(parent.passed(index, index + 1, dead_too=dead_too))
        ]

    @property
    def room(self) -> int:
        """How many more may be in flight. If ordered, none while a message waits out its backoff.

        Being decided here, order survives a restart, and holds for every way to receive.
        """
        room = self.config.max_in_flight - len(self.leases)
        if (
            room > 0
            and self.waiting.times
            and self.config.is_ordered
            and any(index in self.waiting.times for index in self.attempts)
        ):
            return 0
        return room

    def ready_runs(self, limit: int) -> list[Run]:
        """Up to ``limit`` deliverable messages: by priority, then index."""
        lanes = self.feed.lanes
        ready = self.ready
        if len(lanes) == 1 and len(ready) <= 1 and (not ready or 0 in ready):
            return self._ready_in_lane(0, limit)
        found: list[Run] = []
        for priority in sorted(lanes.keys() | ready.keys(), reverse=True):
            runs = self._ready_in_lane(priority, limit)
            limit -= sum(stop - start for start, stop in runs)
            found += runs
            if limit <= 0:
                break
        return found

    def _ready_in_lane(self, priority: int, limit: int) -> list[Run]:
        ready = self.ready.get(priority)
        found = cut(ready, limit) if ready else []
        if not self.parents:
            lane = self.feed.lanes.get(priority)
            if lane is not None:
                ahead = cut(self._ahead(lane, self.cursors.get(priority, self.start)), limit)
                if ahead:
                    # Usually everything ready lies before everything ahead.
                    found = cut(sorted(found + ahead), limit) if found else ahead
        return found

    def _ahead(self, lane: Runs, cursor: int) -> Iterator[Run]:
        runs = lane.within(cursor, self.queue.next)
        if self.settled.stop <= cursor:
            return runs
        # Some may be settled without ever being delivered: acked by id, or expired.
        return (part for run in runs for part in self.settled.outside(*run))

    def ready_within(self, start: int, stop: int) -> list[Run]:
        """The deliverable messages of an index range, ascending, whatever their priority."""
        found = [run for lane in self.ready.values() for run in lane.within(start, stop)]
        if not self.parents:
            for priority, lane in self.feed.lanes.items():
                cursor = max(start, self.cursors.get(priority, self.start))
                for run in lane.within(cursor, stop):
                    found += self.settled.outside(*run)
        return sorted(found)

    def priority_of(self, index: int) -> int:
        special = self.queue.feeds.special.get(index)
        if special is not None:
            return special.priority
        lanes = self.feed.lanes
        if len(lanes) > 1:
            for priority, lane in lanes.items():
                if priority and index in lane:
                    return priority
        return 0

    def deliveries_of(self, index: int) -> int:
        lease = self.leases.get(index)
        if lease:
            return lease.deliveries
        attempts = self.attempts.get(index)
        return attempts.deliveries if attempts else 0

    # Time. These only move messages to `ready`, which follows from the state and the time and so
    # needs no event.

    def mature(self, now_ns: int) -> None:
        """Admit new special messages, and make ready what has waited long enough."""
        if self.feed.special:
            self._pull()
        waiting = self.waiting
        if waiting.heap:
            for index in waiting.pop_due(now_ns):
                del waiting.times[index]
                self._make_ready(index)
                self.news += 1

    def _pull(self) -> None:
        """Admit new special messages. With parents, `open` does that instead."""
        stop = self.queue.next
        if self.pulled < stop and self.feed.special and not self.parents:
            for index in self.feed.special_within(self.pulled, stop):
                if index not in self.settled:
                    self._admit(index)
            self.pulled = stop

    def next_due_ns(self) -> int | None:
        """When the earliest lease or delay ends."""
        self._pull()
        moments = [heap[0][0] for heap in (self.deadlines.heap, self.waiting.heap) if heap]
        return min(moments, default=None)

    # Changing the state.

    def _make_ready(self, index: int) -> None:
        priority = self.priority_of(index)
        if priority not in self.ready:
            self.ready[priority] = Runs()
        self.ready[priority].add(index, index + 1)

    def _admit(self, index: int) -> None:
        """Put a message where it belongs: first by its group, then by its delay."""
        special = self.queue.feeds.special.get(index)
        if special is None:
            self._make_ready(index)
            return
        if special.group is not None:
            is_head, former = self.groups.enter(special.group, index, self.leases, self.attempts)
            if former is not None:
                for lane in self.ready.values():
                    lane.discard(former, former + 1)
                self.waiting.times.pop(former, None)
            if not is_head:
                return
        if index in self.leases or index in self.attempts:
            return
        if special.due_ns:
            self.waiting.add(index, special.due_ns)
        else:
            self._make_ready(index)

    def open(self, start: int, stop: int) -> None:
        """Let messages be delivered that were held for other subscriptions."""
        special = self.feed.special
        for matched in self.feed.matched.within(start, stop):
            for a, b in list(self.opened.outside(*matched)):
                self.opened.add(a, b)
                for c, d in self.settled.outside(a, b):
                    for priority, lane in self.feed.lanes.items():
                        for part in lane.within(c, d):
                            self.ready.setdefault(priority, Runs()).add(*part)
                    if special:
                        for index in self.feed.special_within(c, d):
                            self._admit(index)

    def parents_passed(self, start: int, stop: int) -> None:
        """Open what all parents have passed. Called when one of them has settled these indexes."""
        dead_too = self.config.on_dead_parent == "ignore"
        runs: list[Run] = [(start, stop)]
        for parent in self.parents:
            runs = [part for run in runs for part in parent.passed(*run, dead_too=dead_too)]
        for run in runs:
            self.open(*run)

    def rewire(self, parents: list[Subscription]) -> None:
        """Wait for these parents from now on.

        What was delivered before stays as it is. What never was waits for all of them, and what
        waited only for a former parent is opened.
        """
        if not parents and not self.parents:
            return
        given = sorted({*self.leases.by_index(), *self.attempts})
        self._close()
        self.ready = {}
        self.groups = Groups()
        waiting = self.waiting.times
        self.waiting = Schedule({i: due for i, due in waiting.items() if i in self.attempts})
        for index in given:
            self.opened.add(index, index + 1)
            special = self.queue.feeds.special.get(index)
            if special is not None and special.group is not None:
                self.groups.enter(special.group, index, self.leases, self.attempts)
            if index in self.attempts and index not in self.waiting.times:
                self._make_ready(index)
        self.parents = parents
        self.parents_passed(0, self.queue.next)
        if not parents:
            self._advance_cursors(self.queue.next)
            self.pulled = self.queue.next

    def _advance_cursors(self, stop: int) -> None:
        for priority in self.feed.lanes:
            self.cursors[priority] = max(self.cursors.get(priority, self.start), stop)

    def deliver(self, runs: list[Run], epoch: int, deadline_ns: int | None, at_ns: int) -> None:
        self.mature(at_ns)  # recovery has not done it; a due message must not pass for one ahead
        self.epoch = epoch
        self.last_delivery_ns = at_ns
        first = Lease(epoch, deadline_ns, 1)
        attempts, leases, waiting = self.attempts, self.leases, self.waiting.times
        for start, stop in runs:
            if sum(lane.discard(start, stop) for lane in self.ready.values()) < stop - start:
                self._pass_cursor(start, stop)
            if attempts or waiting:
                for index in range(start, stop):
                    waiting.pop(index, None)
                    tried = attempts.pop(index, None)
                    lease = first
                    if tried:
                        self.counters.redelivered += 1
                        lease = Lease(epoch, deadline_ns, tried.deliveries + 1, tried.reason)
                    leases.put(index, index + 1, lease)
            else:
                leases.put(start, stop, first)
            self.counters.delivered += stop - start
        if deadline_ns is not None:
            self.deadlines.add(deadline_ns, epoch, runs)

    def _pass_cursor(self, start: int, stop: int) -> None:
        for priority, lane in self.feed.lanes.items():
            # A message with a delay or a group is in no lane, and does not move a cursor.
            if start in lane:
                if stop > self.cursors.get(priority, self.start):
                    self.cursors[priority] = stop
                return

    def poll(
        self, runs: list[Run], epoch: int, deadline_ns: int | None, stop: int, at_ns: int
    ) -> None:
        """Like `deliver`, but the cursor moves to ``stop``, and what it passes over is ready."""
        if not self.parents:
            for priority, lane in self.feed.lanes.items():
                for run in self._ahead(lane, self.cursors.get(priority, self.start)):
                    if run[0] >= stop:
                        break
                    self.ready.setdefault(priority, Runs()).add(run[0], min(run[1], stop))
            self._advance_cursors(stop)
        self.polled = stop
        if runs:
            self.deliver(runs, epoch, deadline_ns, at_ns)

    def extend(self, indexes: list[int], deadline_ns: int) -> None:
        for run in runs_of(indexes):
            for start, stop, lease in self.leases.take(*run):
                self.leases.put(start, stop, replace(lease, deadline_ns=deadline_ns))
                self.deadlines.add(deadline_ns, lease.epoch, [(start, stop)])

    def expire_leases(self, runs: list[Run]) -> None:
        for run in runs:
            for start, stop, lease in self.leases.take(*run):
                for index in range(start, stop):
                    self.attempts[index] = Attempts(lease.deliveries, lease.epoch, lease.reason)
                    self._make_ready(index)
                self.counters.leases_expired += stop - start

    def take_back(self, runs: list[Run]) -> None:
        """Undo deliveries that nobody got. The invariant:

        A message that was taken back is as if it had not been delivered: it is ready, or parked
        behind an earlier one of its group that was replayed meanwhile, with the count and the
        reason it had before. Only the epoch of the delivery stays used, so that its receipt, should
        it turn up after all, settles nothing.
        """
        for run in runs:
            for start, stop, lease in self.leases.take(*run):
                for index in range(start, stop):
                    if lease.deliveries > 1:
                        self.attempts[index] = Attempts(lease.deliveries - 1, 0, lease.reason)
                    elif self._steps_back(index):
                        continue
                    self._make_ready(index)
                self.counters.returned += stop - start

    def _steps_back(self, index: int) -> bool:
        """Whether a message that was never delivered after all waits for one of its group.

        That one is earlier, and came back while this one was in flight.
        """
        special = self.queue.feeds.special.get(index)
        if special is None or special.group is None:
            return False
        head = self.groups.step_back(special.group)
        if head is None:
            return False
        self._admit(head)
        return True

    def nack(self, indexes: Iterable[int], due_ns: Iterable[int], reason: str) -> None:
        for index, due in zip(indexes, due_ns, strict=True):
            ((_, _, lease),) = self.leases.take(index, index + 1)
            self.attempts[index] = Attempts(lease.deliveries, 0, reason or lease.reason)
            if due:
                self.waiting.add(index, due)
            else:
                self._make_ready(index)
            self.counters.nacked += 1

    def ack(self, runs: list[Run], at_ns: int) -> None:
        self.last_ack_ns = at_ns
        self.settle(runs, "acked")

    def settle(self, runs: list[Run], way: str) -> None:
        """Settle messages. ``way`` is a field of `Counters`."""
        matched = self.feed.matched
        for start, stop in runs:
            self._forget(start, stop)
            new = self.settled.add(start, stop)
            self.settled_total += new
            self.counters.add(way, new)
            if self.feed.filter is not None:
                # Include what the filter keeps out, so that runs can merge.
                following = matched.next(stop)
                self.settled.add(stop, self.queue.next if following is None else following)
            for child in self.children:
                child.parents_passed(start, stop)
            self.queue.settled_somewhere(start, stop)
        if self.feed.filter is not None:
            self.settled.add(0, self.floor)
        if self.queue.source is not None and self.name == DEFAULT_SUBSCRIPTION:
            self.queue.letters_settled(runs)

    def _forget(self, start: int, stop: int) -> None:
        """Remove messages from whatever places they are in."""
        if self.groups.lines:
            # First, because the next head of a group may be among them too.
            special = self.queue.feeds.special
            for index in self.feed.special_within(start, stop):
                group = special[index].group
                if group is not None:
                    head = self.groups.leave(group, index)
                    if head is not None:
                        self._admit(head)
        for lane in self.ready.values():
            lane.discard(start, stop)
        self.leases.drop(start, stop)
        for places in (self.attempts, self.waiting.times):
            if places:
                _drop(places, start, stop)

    def bury(self, index: int) -> None:
        """Settle a message as a dead letter."""
        self.dead.add(index, index + 1)
        self.settle([(index, index + 1)], "dead_lettered")

    def revive(self, index: int) -> bool:
        """Bring a dead letter back, as if it had never been delivered. False if it is not dead."""
        if not self.dead.discard(index, index + 1):
            return False
        self.settled.discard(index, index + 1)
        self.settled_total -= 1
        self.counters.replayed += 1
        # Line up the groups first: a later message of its group may be in flight.
        self._pull()
        if self.parents and index not in self.opened:
            self.parents_passed(index, index + 1)
        else:
            self._admit(index)
        return True


def _drop(places: dict[int, Any], start: int, stop: int) -> None:
    """Remove the keys in ``[start, stop)``, walking the range or the dict, whichever is shorter."""
    if stop - start <= len(places):
        pop = places.pop
        for index in range(start, stop):
            pop(index, None)
    else:
        for index in [index for index in places if start <= index < stop]:
            del places[index]
