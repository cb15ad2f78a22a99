"""An application with users who subscribe, over a broker that a test can look into."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from penstock.broker import Broker
from penstock.storage.registry import open_store
from tests.http.client import Answer
from tests.http.in_process import InProcess, application

__all__ = ["QUEUE", "Person", "World", "world"]

QUEUE = "topics"
PASSWORD = "secret"


class Person(NamedTuple):
    email: str
    id: str
    token: str


class World:
    def __init__(self, app: InProcess, broker: Broker) -> None:
        self.app = app
        self.broker = broker

    async def post(self, path: str, value: object, token: str = "", **headers: str) -> Answer:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        return await self.app.ask("POST", path, body, authorization=token, **headers)

    async def create(
        self, email: str, role: str = "user", token: str = "", **changes: object
    ) -> Answer:
        value = {"name": "x", "email": email, "password": PASSWORD, "role": role, **changes}
        return await self.post("/api/users/create", value, token)

    async def log_in(self, name: str, password: str = PASSWORD) -> str:
        answer = await self.post("/auth/local", {"email": name, "password": password})
        assert answer.status == 200, answer.body
        token: str = answer.json["token"]
        return token

    async def admin(self) -> str:
        """The token of the settings' admin."""
        return await self.log_in("admin", "adminpassword")

    async def person(self, name: str) -> Person:
        email = f"{name}@example.com"
        answer = await self.create(email)
        assert answer.status == 200, answer.body
        return Person(email, answer.json["id"], await self.log_in(email))

    async def subscribe(self, person: Person, topic: str | None = "sql", **more: str) -> str:
        """The name of the engine's subscription."""
        value: dict[str, Any] = {"callback_url": "http://127.0.0.1:1/", **more}
        if topic is not None:
            value["topic"] = topic
        answer = await self.post("/api/consumers/subscribe", value, person.token)
        assert answer.status == 200, answer.body
        name: str = answer.json["subscription"]
        return name

    async def wait_for(self, person: Person, *others: Person) -> None:
        value = {"user": person.id, "dependent_on": [other.id for other in others]}
        answer = await self.post("/api/consumers/addDependency", value, await self.admin())
        assert answer.status == 200, answer.body

    async def publish(self, content: object, topic: str = "sql") -> Answer:
        value = {"topic": topic, "content": content}
        return await self.post(
            "/api/producers/publish", value, await self.log_in("user", "password")
        )

    async def take(self, subscription: str, *, ack: bool = True) -> list[Any]:
        """What may be delivered now; as a callback that succeeds would."""
        found = await self.broker.receive(QUEUE, subscription=subscription, limit=100)
        if ack and found:
            await self.broker.ack(QUEUE, found, subscription)
        return [json.loads(delivery.body) for delivery in found]

    async def after(self) -> dict[str, set[str]]:
        """Who waits for whom in the engine."""
        stats = await self.broker.queue_stats(QUEUE)
        return {one.name: set(one.config.after) for one in stats.subscriptions}


@asynccontextmanager
async def world(broker: Broker | None = None, **settings: Any) -> AsyncIterator[World]:
    """A broker that is passed in stays open: the next world on it is the same after a restart."""
    own = broker or Broker(await open_store("memory:"))
    try:
        async with application(own, **settings) as app:
            yield World(app, own)
    finally:
        if broker is None:
            await own.close()
