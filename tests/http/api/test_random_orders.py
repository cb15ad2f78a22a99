"""Consumers, dependencies, publishes and restarts in random order: nobody is ever overtaken."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from penstock.broker import Broker
from penstock.errors import NotFound
from penstock.storage.registry import open_store
from tests.http.api.world import QUEUE, Person, World, world

TOPICS = ("sql", "nosql")
STEPS = 200


class History:
    """What was answered, and what must follow from it for each delivery."""

    def __init__(self, rng: Random, people: list[Person], broker: Broker) -> None:
        self.rng = rng
        self.people = people
        self.broker = broker
        self.after: dict[str, set[str]] = {person.id: set() for person in people}
        self.subscriptions: dict[str, tuple[str, str]] = {}  # name -> user id, topic
        self.topics: list[str] = []  # of the messages, whose content is their number
        self.expected: dict[str, set[int]] = {}  # name -> numbers it is to get
        self.given: dict[str, set[int]] = {}
        self.acked: dict[str, set[int]] = {}
        self.deliveries = 0

    async def step(self, api: World) -> None:
        person, other = self.rng.sample(self.people, 2)
        topic = self.rng.choice(TOPICS)
        match self.rng.randrange(20):
            case 0 | 1:
                name = await api.subscribe(person, topic)
                self.subscriptions.setdefault(name, (person.id, topic))
                for table in (self.expected, self.given, self.acked):
                    table.setdefault(name, set())
            case 2 | 3:
                value = {"user": person.id, "dependent_on": [other.id]}
                answer = await api.post("/api/consumers/addDependency", value, await api.admin())
                assert answer.status in (200, 400)
                if answer.status == 200:
                    self.after[person.id].add(other.id)
                else:
                    assert answer.json["code"] == "invalid_dependency"
            case 4 if self.subscriptions and self.rng.random() < 0.3:
                name = self.rng.choice(sorted(self.subscriptions))
                owner, its_topic = self.subscriptions.pop(name)
                [token] = [one.token for one in self.people if one.id == owner]
                answer = await api.post("/api/consumers/unsubscribe", {"topic": its_topic}, token)
                assert answer.status == 200
                for table in (self.expected, self.given, self.acked):
                    del table[name]
            case 5 | 6 | 7 | 8 | 9:
                assert (await api.publish(len(self.topics), topic)).status == 200
                for name, (_, its_topic) in self.subscriptions.items():
                    if its_topic == topic:
                        self.expected[name].add(len(self.topics))
                self.topics.append(topic)
            case _ if self.subscriptions:
                await self.deliver(self.rng.choice(sorted(self.subscriptions)))

    async def deliver(self, name: str, *, fails: float = 0.2) -> int:
        found = await self.broker.receive(
            QUEUE, subscription=name, limit=self.rng.choice((1, 2, 50))
        )
        for delivery in found:
            number = json.loads(delivery.body)
            assert number in self.expected[name]
            assert number not in self.acked[name]
            if number not in self.given[name]:
                self.check(name, number)
            self.given[name].add(number)
            self.deliveries += 1
            if self.rng.random() < fails:
                await self.broker.nack(QUEUE, [delivery], name, delay_seconds=0)
            else:
                await self.broker.ack(QUEUE, [delivery], name)
                self.acked[name].add(number)
        return len(found)

    def check(self, name: str, number: int) -> None:
        """Whoever it waits for has taken the message, on each subscription that is to get it."""
        waited = self.after[self.subscriptions[name][0]]
        for parent, (owner, _) in self.subscriptions.items():
            if owner in waited and number in self.expected[parent]:
                assert number in self.acked[parent], f"{name} got {number} before {parent}"

    async def drain(self) -> None:
        while sum([await self.deliver(name, fails=0) for name in sorted(self.subscriptions)]):
            pass


@pytest.mark.parametrize("seed", range(6))
async def test_no_order_of_things_lets_a_consumer_be_overtaken_or_starve(
    tmp_path: Path, seed: int
) -> None:
    rng = Random(seed)
    settings: dict[str, Any] = {"data": str(tmp_path), "topics_retries": 1000}
    async with Broker(await open_store("memory:")) as broker:
        async with world(broker, **settings) as api:
            history = History(rng, [await api.person(name) for name in "abcd"], broker)
        for _ in range(4):  # restarts in between
            async with world(broker, **settings) as api:
                for _ in range(STEPS // 4):
                    await history.step(api)
        await history.drain()
        assert history.acked == history.expected
        assert history.deliveries > 20
        with pytest.raises(NotFound):
            await broker.receive(QUEUE, subscription="default")
