"""What clients were told, made up line by line: for tests of the checker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from penstock.core.message import Delivery, Envelope, message_id
from penstock.core.settling import Outcome
from tests.crash import report

__all__ = ["Story"]

_SALT = 7
_START_NS = 1_800_000_000_000_000_000
_LEASE_NS = 3600 * 1_000_000_000
_SUBSCRIPTIONS = {report.FIRST: 1, report.SECOND: 2}


class Story:
    """``lines`` is what `Load` would have noted. Messages are known by their numbers.

    Every attempt to store a message has an id of its own.
    """

    def __init__(self) -> None:
        self.lines: list[report.Line] = []
        self._calls = count(1)
        self._epochs = count(1)
        self._numbers: dict[int, int] = {}  # by call
        self._deliveries: Counter[tuple[str, str]] = Counter()  # by id and subscription

    @property
    def _now_ns(self) -> int:
        """A millisecond a line."""
        return _START_NS + len(self.lines) * 1_000_000

    def publish(self, number: int) -> int:
        """Begins; returns the call."""
        call = next(self._calls)
        self._numbers[call] = number
        asked = report.Publish(call=call, at_ns=self._now_ns, numbers=[number], keyed=True)
        self.lines.append(asked)
        return call

    def published(self, call: int, index: int, attempt: int = 0) -> None:
        created_ns = _created_ns(self._numbers[call], attempt)
        entries = [(index, message_id(created_ns, index, _SALT))]
        self.lines.append(report.Published(call=call, at_ns=self._now_ns, entries=entries))

    def store(self, number: int, index: int) -> None:
        """A publish and its answer."""
        self.published(self.publish(number), index)

    def receive(
        self, number: int, index: int, subscription: str = report.FIRST, attempt: int = 0
    ) -> str:
        """A receive and its answer, this message; returns the receipt."""
        call = next(self._calls)
        asked = report.Receive(call=call, at_ns=self._now_ns, subscription=subscription)
        self.lines.append(asked)
        created_ns = _created_ns(number, attempt)
        id = message_id(created_ns, index, _SALT)
        self._deliveries[id, subscription] += 1
        delivery = Delivery(
            queue=report.QUEUE,
            index=index,
            created_at_ns=created_ns,
            salt=_SALT,
            body=report.body_of(number),
            envelope=Envelope(dedup_key=report.key_of(number)),
            dead_letter=None,
            subscription_id=_SUBSCRIPTIONS[subscription],
            epoch=next(self._epochs),
            deliveries=self._deliveries[id, subscription],
            deadline_ns=self._now_ns + _LEASE_NS,
        )
        self.lines.append(report.Received(call=call, at_ns=self._now_ns, deliveries=[delivery]))
        return delivery.receipt

    def ack(self, receipt: str, subscription: str = report.FIRST) -> None:
        call = next(self._calls)
        self.lines.append(
            report.Ack(call=call, at_ns=self._now_ns, subscription=subscription, receipts=[receipt])
        )
        done = [Outcome.DONE.value]
        self.lines.append(report.Acked(call=call, at_ns=self._now_ns, outcomes=done))

    def consume(self, number: int, index: int, attempt: int = 0) -> None:
        """Received and acked on every subscription."""
        for name in _SUBSCRIPTIONS:
            self.ack(self.receive(number, index, name, attempt), name)

    @contextmanager
    def rebuild(self) -> Iterator[None]:
        """Everything is lost at the beginning."""
        lost, rebuilt = next(self._calls), next(self._calls)
        self.lines += [
            report.Rebuild(call=rebuilt, at_ns=self._now_ns),
            report.Lose(call=lost, at_ns=self._now_ns),
            report.Lost(call=lost, at_ns=self._now_ns),
        ]
        yield
        self.lines.append(report.Rebuilt(call=rebuilt, at_ns=self._now_ns))


def _created_ns(number: int, attempt: int) -> int:
    return _START_NS + (10 * number + attempt) * 1_000_000
