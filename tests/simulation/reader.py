"""What is known of one subscription: who was given what, and what may have become of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf

from penstock.core.message import Delivery
from penstock.core.subscription import Subscription
from tests.simulation.history import Call, Violation
from tests.simulation.placed import Placed
from tests.simulation.sent import Sent, matches


@dataclass(kw_only=True, eq=False)
class Given:
    """A delivery that a client got. The lease holds at least until ``until_ns``.

    ``placed`` is None for a dead letter.
    """

    index: int
    placed: Placed | None
    call: Call
    receipt: str
    epoch: int
    deliveries: int
    until_ns: float
    extensions: int = 0  # not answered yet


@dataclass(frozen=True, kw_only=True)
class Range:
    """A call that settled everything below an index, or, if it is not ``certain``, some of it."""

    call: Call
    stop: int
    certain: bool = True


@dataclass(eq=False)
class Trail:
    """All that happened to one message on one subscription."""

    given: list[Given] = field(default_factory=list)
    acks: list[Call] = field(default_factory=list)  # any that may have settled it
    done: list[Call] = field(default_factory=list)  # those answered that they settled it
    acked: list[Call] = field(default_factory=list)  # those answered that it is settled
    enders: list[Call] = field(default_factory=list)  # those that may have ended a lease
    returns: list[Call] = field(default_factory=list)  # those that may have given it back
    revivals: list[Call] = field(default_factory=list)  # replays of its dead letter
    releases: list[Call] = field(default_factory=list)
    discards: list[Call] = field(default_factory=list)


class Reader:
    """One subscription, from its creation to its deletion; one made anew is another reader.

    ``losses`` and ``rebuilds`` are those of the store: see `checker`.
    """

    def __init__(
        self,
        subscription: Subscription,
        *,
        losses: Sequence[Call] = (),
        rebuilds: Sequence[Call] = (),
    ) -> None:
        self.id = subscription.id
        self.name = subscription.name
        self.queue = subscription.queue.name
        self.salt = subscription.queue.salt
        self.filter = subscription.config.filter
        self.created_ns = subscription.created_ns
        self.first = subscription.start
        self.max_deliveries = subscription.config.max_deliveries  # None if it is not known
        self.trails: defaultdict[int, Trail] = defaultdict(Trail)
        self.groups: defaultdict[str, list[Given]] = defaultdict(list)
        self.seeks: list[Range] = []
        self.ranges: list[Range] = []  # acks up to an index, and purges
        self.losses = losses
        self.rebuilds = rebuilds

    def __str__(self) -> str:
        return f"{self.queue}/{self.name}"

    def is_for(self, subscription: Subscription) -> bool:
        return (subscription.queue.salt, subscription.name, subscription.created_ns) == (
            self.salt,
            self.name,
            self.created_ns,
        ) and subscription.config.filter == self.filter

    @property
    def words(self) -> list[str]:
        return [f"{self.queue}/", f" {self.queue} ", f" {self.queue}:"]

    def wants(self, sent: Sent) -> bool:
        return matches(self.filter, sent)

    # What may have happened between two moments.

    def was_sought(self, after: float, before: float) -> bool:
        return any(seek.call.may_fall_between(after, before) for seek in self.seeks)

    def was_surely_sought(self, after: float, before: float) -> bool:
        calls = [seek.call for seek in self.seeks]
        return any(c.asked > after and c.answered and c.answered < before for c in calls)

    def was_reset(self, given: Given, after: float, before: float) -> bool:
        """Whether its message may have come back: sought, replayed, or what was done is lost."""
        calls = [*self.trails[given.index].revivals, *self.losses]
        return (
            self.was_sought(after, before)
            or any(call.may_fall_between(after, before) for call in calls)
            or (given.placed is not None and given.placed.was_renewed(self.rebuilds, after, before))
        )

    def may_have_settled(self, index: int, before: float, after: float = -1) -> bool:
        """Whether a client's call may have settled the message then, if only for a while."""
        if index < self.first and after < 0:
            return True
        ranges = [r.call for r in self.seeks + self.ranges if index < r.stop]
        calls = ranges + self.trails[index].acks
        return any(call.may_fall_between(after, before) for call in calls)

    def prove_ack(self, index: int, moment: float) -> None:
        """Somebody was given the message because this subscription had acked it.

        So an ack that was never answered is known to be done, if nothing else explains it.
        """
        trail = self.trails[index]
        if index < self.first or self.seeks or self.ranges or trail.revivals or trail.acked:
            return
        if self.losses:
            return
        first = trail.acks[0]
        proof = Call(what=first.what, asked=first.asked, asked_ns=first.asked_ns, answered=moment)
        trail.acked.append(proof)

    def last_seek(self, index: int) -> float:
        """When the message surely was to be delivered again; -1 for never."""
        seeks = [s.call.asked for s in self.seeks if s.stop <= index and s.call.answered]
        return max(seeks, default=-1)

    def live(self, given: Given, call: Call) -> bool:
        """Whether a delivery was surely still in flight when another call took effect.

        A receive takes effect at the moment it is asked for.
        """
        if given.call.asked > call.asked or call.asked_ns >= given.until_ns:
            return False
        # One that met a rebuild took effect after it.
        if any(r.may_fall_between(given.call.asked, call.end) for r in self.rebuilds):
            return False
        enders = [r.call for r in self.seeks + self.ranges] + self.trails[given.index].enders
        return not any(e.may_fall_between(given.call.asked, call.asked + 0.5) for e in enders)

    # A client was answered.

    def give(
        self, call: Call, delivery: Delivery, placed: Placed | None, group: str | None
    ) -> Given:
        """Check a delivery against all that happened before it, then remember it.

        ``group`` is None if order within groups is not promised.
        """
        assert call.answered is not None
        index = delivery.index
        given = Given(
            index=index,
            placed=placed,
            call=call,
            receipt=delivery.receipt,
            epoch=delivery.epoch,
            deliveries=delivery.deliveries,
            until_ns=inf if delivery.deadline_ns is None else delivery.deadline_ns,
        )
        trail = self.trails[index]
        for problem in self._problems(trail, given, call, call.answered):
            raise Violation(problem[0], f"{self} message {index}, {problem[1]}", self.words)
        if group is not None:
            self._check_group(group, given, call)
            self.groups[group].append(given)
        # Kept in the order in which they took effect, which is that of asking.
        trail.given.append(given)
        trail.given.sort(key=lambda g: g.call.asked)
        return given

    def _problems(
        self, trail: Trail, given: Given, call: Call, answered: float
    ) -> Iterator[tuple[str, str]]:
        acked = trail.acked + [r.call for r in self.ranges if r.certain and given.index < r.stop]
        for ack in acked:
            is_before = ack.answered is not None and ack.answered < call.asked
            if is_before and not self.was_reset(given, ack.asked, answered):
                yield "delivered after its ack", f"which was answered at {ack.answered}"
        for other in trail.given:
            if other.receipt == given.receipt:
                yield "receipt used twice", given.receipt
            if other.call is not call and self.live(other, call):
                yield (
                    "two live leases",
                    f"{other.receipt} of {other.call.asked} and {given.receipt} of {call.asked}",
                )
            if other.call.asked < call.asked and not self.was_reset(
                given, other.call.asked, answered
            ):
                if given.epoch <= other.epoch:
                    yield "epoch went back", f"{other.receipt}, then {given.receipt}"
                back = [r for r in trail.returns if r.may_fall_between(other.call.asked, answered)]
                if given.deliveries + len(back) <= other.deliveries:
                    yield (
                        "delivery count went back",
                        f"{other.deliveries} at {other.call.asked}, then {given.deliveries}",
                    )

    def _check_group(self, group: str, given: Given, call: Call) -> None:
        for other in self.groups[group]:
            if other.index != given.index and (other.call is call or self.live(other, call)):
                raise Violation(
                    "group order",
                    f"{self} group {group}: {given.index} was given while {other.index} "
                    f"was in flight under {other.receipt}",
                    self.words,
                )

    def settled(self, call: Call, index: int, receipt: str | None, *, done: bool) -> None:
        """An ack was answered: the message is settled, by this call if it is ``done``."""
        trail = self.trails[index]
        trail.acked.append(call)
        if not done:
            return
        trail.done.append(call)
        for given in self._under(index, receipt) if receipt else []:
            for later in trail.given:
                if (
                    later.epoch > given.epoch
                    and later.call.asked < call.asked
                    and not self.was_reset(later, later.call.asked, call.asked)
                ):
                    raise Violation(
                        "stale receipt",
                        f"{self} {index}: {receipt} settled the later {later.receipt}",
                        self.words,
                    )

    def extending(self, index: int, receipt: str, until_ns: int) -> None:
        """An extension was asked for: until it is answered the lease may be the shorter one."""
        for given in self._under(index, receipt):
            given.until_ns = min(given.until_ns, until_ns)
            given.extensions += 1

    def extended(self, index: int, receipt: str, until_ns: int) -> None:
        for given in self._under(index, receipt):
            given.extensions -= 1
            if not given.extensions:
                given.until_ns = until_ns

    def _under(self, index: int, receipt: str) -> list[Given]:
        return [given for given in self.trails[index].given if given.receipt == receipt]
