"""Jepsen's *total queue*, for many queues with fan-out: nothing lost, nothing unexpected.

The checker believes what clients were told, and nothing else; it looks into the store only to learn
which queue or subscription a name stands for. What was asked for and never answered may or may not
have happened, so it accuses nobody and excuses everybody.

Two things may happen to a store that has a record elsewhere, each from one moment to another.

During a *loss*, from before anything is wiped until everything is: deliveries and acks that were
asked for before its end may come undone, even if they were answered.

During a *rebuild*, from before the loss until no server has anything left to put back:

- Leases may end at any moment.
- A publish that is under way at any time of it may be stored more than once: at several indexes, or
  at one index with another id. Until the end each copy may go, and come back as if it were new; its
  index may be used again. The copy that the publish is answered with stays from the answer on, with
  its index, its id and its progress.

Nothing else is excused: what was answered before is where it was; an ack that was asked for after
the loss, and after its publish was answered, stays; and after the end nothing moves or goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from penstock.core.limits import NANOSECONDS
from penstock.core.machine import Machine
from penstock.core.message import Delivery, Message, PublishedMessage, parse_message_id
from penstock.core.queue import Queue
from penstock.core.subscription import Subscription
from tests.simulation.history import Call, History, Violation
from tests.simulation.placed import Placed
from tests.simulation.reader import Reader
from tests.simulation.sent import Sent, number_in

Spot = tuple[int, int]
"""The salt of a queue, which no other queue has, and an index."""


class Checker:
    """Told of every call and answer, raises `Violation` at the first answer that cannot be."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.sent: dict[int, Sent] = {}
        self.placed: dict[Spot, Placed] = {}
        self.spots: dict[int, Spot] = {}  # by the number of the message
        self.readers: dict[int, Reader] = {}
        self.duplicates: set[int] = set()
        self.losses: list[Call] = []
        self.rebuilds: list[Call] = []
        self.deleted_queues: dict[int, Call] = {}  # by salt
        self.deleted_readers: dict[int, Call] = {}

    def reader(self, subscription: Subscription) -> Reader:
        found = self.readers.get(subscription.id)
        if found is None:
            found = self.readers[subscription.id] = Reader(
                subscription, losses=self.losses, rebuilds=self.rebuilds
            )
        return found

    def forget_unmade(self, machine: Machine) -> None:
        """After a crash: subscriptions whose creation did not survive have never been.

        Another one may get the number of such a one. No client can have heard of it.
        """
        for id, reader in list(self.readers.items()):
            found = machine.subscriptions.get(id)
            is_heard_of = any(trail.given or trail.acked for trail in reader.trails.values())
            if not is_heard_of and (found is None or not reader.is_for(found)):
                del self.readers[id]

    # Publishing.

    def published(
        self,
        call: Call,
        messages: Sequence[Sent],
        result: Sequence[PublishedMessage],
        *,
        is_keyed: bool = False,
    ) -> None:
        """With a key a duplicate is the message itself, stored by an earlier attempt."""
        last = -1
        for sent, entry in zip(messages, result, strict=True):
            parsed = parse_message_id(entry.id)
            assert parsed is not None
            if parsed.index != entry.index:
                raise Violation("ids", f"{entry.id} is not that of {entry.index}", [sent.queue])
            if entry.duplicate and not is_keyed:
                self.duplicates.add(sent.number)
                self._check_duplicate(sent, (parsed.salt, entry.index))
                continue
            is_whole = not self._was_rebuilt_meanwhile(sent)
            if last >= 0 and entry.index != last + 1 and is_whole:
                raise Violation("dense indexes", f"{last}, then {entry.index}", [sent.queue])
            last = entry.index
            spot = (parsed.salt, entry.index)
            placed = self._place(spot, sent, entry.id, call.asked_ns, inf)
            placed.is_answered = True
            placed.since = self.history.moment

    def _check_duplicate(self, sent: Sent, spot: Spot) -> None:
        first = self.placed.get(spot)
        if first is not None and first.sent.dedup_key != sent.dedup_key:
            raise Violation(
                "dedup",
                f"{sent.dedup_key!r} was taken for {first.sent.dedup_key!r} at {spot[1]}",
                [sent.queue],
            )

    def _place(self, spot: Spot, sent: Sent, id: str, created_ns: int, asked: float) -> Placed:
        """A client saw the message there, by a call that was asked at that moment."""
        words = [f"{sent.queue}/", f" {sent.queue} "]
        is_movable = self._was_rebuilt_meanwhile(sent)
        if self.spots.setdefault(sent.number, spot) != spot and not is_movable:
            raise Violation(
                "stored twice",
                f"{sent.queue} message {sent.number} is at {self.spots[sent.number][1]} "
                f"and at {spot[1]}",
                words,
            )
        there = self.placed.get(spot)
        if there is not None and there.id == id and there.sent is sent:
            there.seen = max(there.seen, asked)
            return there
        found = Placed(
            sent=sent, id=id, created_ns=created_ns, seen=asked, since=self.history.moment
        )
        if there is None or there.may_be_gone(self.rebuilds):
            self.placed[spot] = found
        elif not is_movable or asked >= there.since:
            invariant = "stable ids" if there.sent is sent else "stable indexes"
            raise Violation(
                invariant,
                f"{sent.queue} {spot[1]} held message {there.sent.number} with id {there.id}, "
                f"now {sent.number} with {id}",
                words,
            )
        return found

    def _was_rebuilt_meanwhile(self, sent: Sent) -> bool:
        """Whether the publish was under way during a rebuild."""
        return any(r.may_fall_between(sent.call.asked, sent.call.end) for r in self.rebuilds)

    # Reading and receiving.

    def identify(self, message: Message, *, is_known: bool = True) -> Sent:
        """Which message it is; it must be one that was sent, and be as it was sent.

        Unless ``is_known`` is off it must also be what a client was told to be at its index.
        """
        number = number_in(message.body)
        sent = self.sent.get(number)
        letter = message.dead_letter
        queue = letter.queue if letter else message.queue
        what = f"{message.queue} {message.index} with body {number}"
        if sent is None or sent.call.refused or number in self.duplicates or sent.queue != queue:
            raise Violation("unexpected", f"{what} was never stored there", [queue])
        if (
            message.body != sent.body()
            or message.topic != sent.topic
            or message.priority != sent.priority
            or message.group_key != sent.group
            or message.dedup_key != sent.dedup_key
            or message.attributes.get("color") != sent.color
        ):
            raise Violation("unexpected", f"{what} is not as it was sent", [queue])
        there = self.placed.get((message.salt, letter.index if letter else message.index))
        if is_known and there is not None and (there.sent is not sent or there.id != message.id):
            raise Violation(
                "stable indexes", f"{what} was message {there.sent.number} before", [queue]
            )
        return sent

    def delivered(
        self,
        call: Call,
        subscription: Subscription,
        parents: Sequence[Subscription],
        deliveries: Sequence[Delivery],
    ) -> None:
        """``parents`` are those the subscription waited for when it was asked."""
        assert call.answered is not None
        reader = self.reader(subscription)
        queue = subscription.queue
        for delivery in deliveries:
            message = delivery
            sent = self.identify(message, is_known=message.dead_letter is not None)
            placed = None
            if message.dead_letter is None:
                spot = (message.salt, message.index)
                placed = self._place(spot, sent, message.id, message.created_at_ns, call.asked)
                if not reader.wants(sent):
                    raise Violation("filter", f"{reader} was given {message.index}", reader.words)
                if reader.max_deliveries and delivery.deliveries > reader.max_deliveries:
                    raise Violation(
                        "too many deliveries", f"{reader} {message.index}", reader.words
                    )
                if sent.not_before_ns is not None and call.asked_ns < sent.not_before_ns:
                    raise Violation("too early", f"{reader} {message.index}", reader.words)
                if delivery.deliveries == 1 and not self._was_given(reader, message.index, call):
                    for parent in parents:
                        self._check_parent(subscription, self.reader(parent), message, sent, call)
            # Where retention may settle what is in flight, nobody can tell which leases live.
            in_groups = queue.config.fifo and queue.config.retain_unsettled
            group = sent.group if in_groups and message.dead_letter is None else None
            reader.give(call, delivery, placed, group)

    def check_order(self, call: Call, reader: str, deliveries: Sequence[Delivery]) -> None:
        """A receive gives by priority, then index."""
        keys = [(-d.priority, d.index) for d in deliveries]
        if keys != sorted(keys):
            raise Violation("order", f"{reader} at {call.asked}: {keys}", [reader])

    def _was_given(self, reader: Reader, index: int, call: Call) -> bool:
        """What was given once is not held back again, unless its subscription began anew."""
        return any(
            not reader.was_surely_sought(given.call.asked, call.asked)
            for given in reader.trails[index].given
        )

    def _check_parent(
        self,
        subscription: Subscription,
        parent: Reader,
        message: Message,
        sent: Sent,
        call: Call,
    ) -> None:
        child, queue, index = self.reader(subscription), subscription.queue, message.index
        assert call.answered is not None
        if (
            not parent.wants(sent)
            or child.trails[index].releases
            or self.may_have_expired(queue, sent, message.created_at_ns, call.asked_ns)
            # It may be a dead letter of the parent, of a delivery that nobody got.
            or subscription.config.on_dead_parent == "ignore"
        ):
            return
        if not parent.may_have_settled(index, call.answered):
            raise Violation(
                "dependency",
                f"{child} was given {index}, which {parent} had not settled",
                child.words,
            )
        parent.prove_ack(index, call.answered)

    def may_have_expired(self, queue: Queue, sent: Sent, created_ns: int, now_ns: int) -> bool:
        if not queue.config.retain_unsettled:
            return True
        if sent.expires_at_ns is not None and sent.expires_at_ns <= now_ns:
            return True
        ttl = queue.config.message_ttl_seconds
        return ttl is not None and created_ns + ttl * NANOSECONDS <= now_ns

    # After a start, and at the end.

    def check_stored(self, queue: Queue, messages: Sequence[Message]) -> None:
        """All of a queue that can be read: dense, and everything that was answered is there."""
        for message in messages:
            self.identify(message)
        found = [m.index for m in messages]
        if found != list(range(queue.first, queue.next)):
            raise Violation(
                "dense indexes",
                f"{queue.name} has {queue.first} to {queue.next}, but reads as {found}",
                [queue.name],
            )
        for (salt, index), placed in self.placed.items():
            if salt == queue.salt and index >= queue.next:
                raise Violation(
                    "lost",
                    f"{queue.name} {index} (message {placed.sent.number}) is beyond the end "
                    f"{queue.next}",
                    [queue.name],
                )

    def check_definitions(self, machine: Machine) -> None:
        """What clients have used is there unless somebody deleted it."""
        salts = {queue.salt for queue in machine.queues.values()}
        for salt, _ in self.placed:
            if salt not in salts and salt not in self.deleted_queues:
                raise Violation("lost", f"the queue with salt {salt} is gone")
        for id, reader in self.readers.items():
            gone = id not in machine.subscriptions
            if gone and reader.salt in salts and id not in self.deleted_readers:
                raise Violation("lost", f"subscription {reader} is gone", reader.words)

    def check_nothing_lost(
        self,
        queue: Queue,
        subscription: Subscription,
        dead: set[int],
        held: set[int],
        now_ns: int,
    ) -> None:
        """After the drain: every message stored in the queue has left in a way that is known."""
        reader = self.reader(subscription)
        for (salt, index), placed in self.placed.items():
            if salt != queue.salt or index < subscription.start or not reader.wants(placed.sent):
                continue
            trail = reader.trails[index]
            # If another message was there before, its acks do not count.
            is_its_own = not self._was_rebuilt_meanwhile(placed.sent) or any(
                given.placed is not None and given.placed.id == placed.id for given in trail.given
            )
            is_settled = reader.may_have_settled(
                index, self.history.moment, reader.last_seek(index)
            )
            if (
                index in dead
                or index in held
                or trail.discards
                or (is_settled and is_its_own)
                or placed.may_be_gone(self.rebuilds)
                or self.may_have_expired(queue, placed.sent, placed.created_ns, now_ns)
            ):
                continue
            raise Violation(
                "lost",
                f"{reader} was never given {index} (message {placed.sent.number}), "
                f"published at {placed.sent.call.asked}",
                reader.words,
            )

    def check_held(self, child: Subscription, parents: Sequence[Subscription], held: int) -> None:
        """After the drain: what is held back still has somebody to wait for."""
        placed = self.placed.get((child.queue.salt, held))
        if placed is None:
            return
        for parent in parents:
            reader = self.reader(parent)
            if child.config.on_dead_parent == "cascade" and held in parent.dead:
                raise Violation("cascade", f"{held} is dead for {reader}, but not for {child.name}")
            trail = reader.trails[held]
            if reader.wants(placed.sent) and (not trail.done or trail.revivals or reader.seeks):
                return
        raise Violation(
            "held for nobody",
            f"{self.reader(child)} {held}: every parent has settled it",
            self.reader(child).words,
        )
