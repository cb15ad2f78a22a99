from __future__ import annotations

from random import Random

import pytest

from penstock.core import definitions, publishing
from penstock.core import events as ev
from penstock.core.config import QueueConfig, SubscriptionConfig
from penstock.core.filters import Filter, Match, Subject
from penstock.core.machine import Machine, Place
from penstock.core.message import NewMessage

QUEUE = "jobs"
TOPICS = 1000


class Journal:
    def append(self, event: ev.Event) -> Place:
        return Place(1, 1)


def subscribe(machine: Machine, name: str, filter_text: str) -> None:
    config = SubscriptionConfig(filter=filter_text)
    definitions.create_subscription(machine, QUEUE, name, config, 0, [], 0)


@pytest.fixture
def machine() -> Machine:
    """A thousand subscriptions that each want another topic."""
    machine = Machine(journal=Journal(), rng=Random(1))
    definitions.create_queue(machine, QUEUE, QueueConfig(), 0)
    for n in range(TOPICS):
        subscribe(machine, f"s{n}", f'topic == "t{n}"')
    return machine


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The filters that were put to a message."""
    found: list[str] = []
    matches = Filter.matches

    def watched(self: Filter, subject: Subject) -> Match:
        found.append(self.source)
        return matches(self, subject)

    monkeypatch.setattr(Filter, "matches", watched)
    return found


def test_no_filter_on_the_topic_alone_is_ever_asked(machine: Machine, asked: list[str]) -> None:
    batch = publishing.prepare([NewMessage(body=b"", topic=f"t{n}") for n in (3, 7, 3)])
    publishing.publish(machine, QUEUE, batch, 1)
    assert asked == []
    waiting = {s.name: s.unsettled for s in machine.queue(QUEUE).subscriptions.values()}
    assert {name: count for name, count in waiting.items() if count} == {
        "default": 3,
        "s3": 2,
        "s7": 1,
    }


def test_a_filter_is_asked_once_however_many_subscriptions_share_it(
    machine: Machine, asked: list[str]
) -> None:
    for n in range(5):
        subscribe(machine, f"p{n}", "priority > 3")
    batch = publishing.prepare([NewMessage(body=b"", priority=9), NewMessage(body=b"", topic="x")])
    publishing.publish(machine, QUEUE, batch, 1)
    assert asked == ["priority > 3"] * 2
    assert {machine.subscription(QUEUE, f"p{n}").unsettled for n in range(5)} == {1}
