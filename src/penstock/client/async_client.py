"""The asynchronous client: the broker's methods, over HTTP."""

from __future__ import annotations

import random
import secrets
import ssl
from collections.abc import Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self

import msgspec

from penstock.client import answers, paths
from penstock.client.arguments import check_count, check_seconds, listed
from penstock.client.coalescer import Limits
from penstock.client.codec import MSGPACK, decode_msgpack, encode_form
from penstock.client.consumer import Consumer
from penstock.client.errors import ClientClosed
from penstock.client.health import Health, look_at
from penstock.client.json_calls import JsonCalls
from penstock.client.message import Delivery, Message, Published, ViewedMessage, from_queue
from penstock.client.publishing import Publisher, key_maker
from penstock.client.retry import Retry
from penstock.client.settling import Settler, Target
from penstock.client.transport import Transport
from penstock.client.user import User
from penstock.core.config import DEFAULT_SUBSCRIPTION, QueueConfig, SubscriptionConfig
from penstock.core.filter_test import FilterTest
from penstock.core.graph import Graph, HeldMessage
from penstock.core.limits import DEAD_LETTER_SUFFIX
from penstock.core.message import NewMessage
from penstock.core.outcome import Outcome
from penstock.core.stats import (
    DefinedSubscription,
    EnsuredQueue,
    EnsuredSubscription,
    QueueStats,
    SubscriptionStats,
)
from penstock.errors import InvalidArgument

__all__ = ["AsyncClient"]

_PUBLISH_ITEMS = 1000
_PUBLISH_BYTES = 4 * 1024 * 1024
_SETTLE_CALLS = 1000
_SETTLE_BYTES = 512 * 1024
_MOST_IDS = 100  # of a request, as the server has it
_SUBSCRIPTIONS = 1000  # of a page, as the server has it


class AsyncClient:
    """A client of a Penstock server. Close it, or use it as an async context manager.

    Its methods take what those of `penstock.Broker` take and return what they return, so that a
    program can move from an embedded queue to a served one and back. Messages, deliveries and the
    result of a publish are classes of its own, with the same attributes: they read an answer, and
    make of it what is asked for. Errors are those of `penstock.errors` and
    `penstock.client.errors`.

    - ``username`` and ``password`` are sent by HTTP Basic; a ``token`` takes their place.
    - Concurrent `publish` calls for one queue share a request, and so do concurrent `ack`, `nack`,
      `extend` and `give_back` calls for one subscription. Each caller gets its own answer or
      error. ``linger_seconds`` is how long the first call waits for others; 0 is one turn of the
      event loop.
    - ``requests`` is how many publish requests of a queue are under way at once. With 1, calls
      made at the same time are carried out in the order in which they were made. A caller that
      awaits each answer before the next call has that order anyway.
    - ``retry`` says how often a request is sent again, where that is safe. To make publishing
      safe, each request gets an idempotency key, which the server remembers for the queue's
      ``dedup_window_seconds``. With ``is_idempotent=False`` there is no key, and a publish whose
      answer was lost is not sent again.
    - ``timeout_seconds`` is how long to wait for an answer; the wait of a long poll is added to it.
    - ``tls`` says which certificates to trust; without it, those that the machine trusts.

    It belongs to the event loop in which it is first used. Once that has ended, calls raise
    `ClientClosed`.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        *,
        username: str | None = None,
        password: str | None = None,
        token: str | None = None,
        timeout_seconds: float = 30.0,
        connections: int = 100,
        linger_seconds: float = 0.0,
        requests: int = 4,
        retry: Retry | None = None,
        is_idempotent: bool = True,
        tls: ssl.SSLContext | None = None,
        rng: random.Random | None = None,
    ) -> None:
        # Other values would wait for ever, or not at all.
        check_seconds("timeout_seconds", timeout_seconds, least=0.001)
        check_seconds("linger_seconds", linger_seconds)
        check_count("connections", connections)
        check_count("requests", requests)
        self._transport = Transport(
            url,
            username=username,
            password=password,
            token=token,
            timeout_seconds=timeout_seconds,
            connections=connections,
            tls=tls,
            retry=retry or Retry(),
            rng=rng or random.Random(),
        )
        self._calls = JsonCalls(self._transport)
        self._next_key = key_maker(secrets.token_urlsafe(12)) if is_idempotent else None
        self._publish_limits = Limits(_PUBLISH_ITEMS, _PUBLISH_BYTES, linger_seconds, requests)
        self._settle_limits = Limits(_SETTLE_CALLS, _SETTLE_BYTES, linger_seconds)
        self._publishers: dict[str, Publisher] = {}
        self._settlers: dict[tuple[str, str], Settler] = {}
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Wait for the calls under way, then let go of the connections. Idempotent."""
        self._is_closed = True
        if self._transport.is_elsewhere:
            return  # its calls ended with its loop, or are the parent's of this process
        for publisher in self._publishers.values():
            await publisher.close()
        for settler in self._settlers.values():
            await settler.close()
        await self._transport.close()

    async def cut_off(self) -> None:
        """Drop the connections at once, so that calls under way fail. Call `close` all the same."""
        await self._transport.close()

    def _open_transport(self) -> Transport:
        if self._is_closed:
            raise ClientClosed("the client was closed: make a new one")
        return self._transport

    @property
    def url(self) -> str:
        return self._transport.url

    # Queues.

    async def create_queue(
        self, /, name: str, config: QueueConfig | None = None, **settings: Any
    ) -> QueueStats:
        """Create a queue, with its subscription ``default``. Settings are those of `QueueConfig`.

        Raises `QueueExists`.
        """
        body = {"name": name, **_settings(config, settings)}
        return await self._calls.ask("POST", paths.QUEUES, QueueStats, body)

    async def ensure_queue(
        self, /, name: str, config: QueueConfig | None = None, **settings: Any
    ) -> EnsuredQueue:
        """Create a queue if there is none of that name; returns the queue, new or not.

        A queue that exists stays as it is. Raises `QueueExists` when it has other values for these
        settings.
        """
        path, body = paths.queue_path(name), _settings(config, settings)
        return await self._calls.ask("PUT", path, EnsuredQueue, body, is_repeatable=True)

    async def alter_queue(self, /, name: str, **settings: Any) -> QueueStats:
        """Change some settings, and return the queue as it is now. The others stay as they are."""
        return await self._calls.ask("PATCH", paths.queue_path(name), QueueStats, settings)

    async def delete_queue(self, name: str) -> None:
        """Delete a queue with its messages, subscriptions and dead letters."""
        await self._calls.tell("DELETE", paths.queue_path(name))

    async def purge_queue(self, name: str) -> int:
        """Remove every message, for every subscription; returns how many. Dead letters stay.

        So do the messages that dead letters refer to, which are not counted.
        """
        answer = await self._calls.ask("POST", paths.queue_path(name, "/purge"), dict[str, int])
        return answer["purged"]

    async def queues(self, *, after: str | None = None, limit: int = 100) -> list[QueueStats]:
        """A page of queues by name; the next page starts ``after`` the last name of this one."""
        path = paths.with_query(paths.QUEUES, after=after, limit=limit)
        return (await self._calls.read(path, answers.Queues)).queues

    async def queue_stats(self, name: str) -> QueueStats:
        return await self._calls.read(paths.queue_path(name), QueueStats)

    async def stats(self) -> list[QueueStats]:
        """The stats of every queue, by name."""
        return (await self._calls.read(paths.STATS, answers.Queues)).queues

    # Subscriptions.

    async def create_subscription(
        self,
        /,
        queue: str,
        name: str,
        config: SubscriptionConfig | None = None,
        *,
        start: str | int | datetime = "latest",
        **settings: Any,
    ) -> DefinedSubscription:
        """Create a subscription. Settings are those of `SubscriptionConfig`.

        ``start`` is ``"earliest"``, ``"latest"``, an index or a time. With a callback, the answer
        has the secret that signs its calls; it is never shown again.
        """
        body = {"name": name, "start": start, **_settings(config, settings)}
        path = paths.queue_path(queue, "/subscriptions")
        return await self._calls.ask("POST", path, DefinedSubscription, body)

    async def ensure_subscription(
        self,
        /,
        queue: str,
        name: str,
        config: SubscriptionConfig | None = None,
        *,
        start: str | int | datetime = "latest",
        **settings: Any,
    ) -> EnsuredSubscription:
        """Create a subscription if there is none of that name; returns it, new or not.

        One that exists stays as it is: where it is, and paused if it is. Raises
        `SubscriptionExists` when its settings differ; those that are left out count as the
        defaults.
        """
        body = {"start": start, **_settings(config, settings)}
        path = paths.subscription_path(queue, name)
        return await self._calls.ask("PUT", path, EnsuredSubscription, body, is_repeatable=True)

    async def alter_subscription(
        self, /, queue: str, name: str, **settings: Any
    ) -> DefinedSubscription:
        """Change some settings, and return the subscription as it is now.

        The answer has a secret if this gives the subscription its first callback.
        """
        path = paths.subscription_path(queue, name)
        return await self._calls.ask("PATCH", path, DefinedSubscription, settings)

    async def rotate_secret(self, queue: str, name: str) -> str:
        """Make a new secret for its callbacks. The old one signs too, until the next rotation."""
        path = paths.subscription_path(queue, name, "/secret/rotate")
        return (await self._calls.ask("POST", path, dict[str, str]))["secret"]

    async def delete_subscription(self, queue: str, name: str) -> None:
        """Delete a subscription. Messages that waited for it alone are released."""
        await self._calls.tell("DELETE", paths.subscription_path(queue, name))

    async def subscriptions(self, queue: str) -> list[SubscriptionStats]:
        """Those of a queue, by name."""
        path = paths.queue_path(queue, "/subscriptions")
        found: list[SubscriptionStats] = []
        after = None
        while True:
            asked = paths.with_query(path, after=after, limit=_SUBSCRIPTIONS)
            page = await self._calls.read(asked, answers.Subscriptions)
            found += page.subscriptions
            after = page.next
            if after is None:
                return found

    async def subscription_stats(
        self, queue: str, subscription: str = DEFAULT_SUBSCRIPTION
    ) -> SubscriptionStats:
        path = paths.subscription_path(queue, subscription)
        return await self._calls.read(path, SubscriptionStats)

    async def pause(self, queue: str, subscription: str = DEFAULT_SUBSCRIPTION) -> None:
        """Deliver nothing until it is resumed. Leases run on."""
        await self._calls.tell("POST", paths.subscription_path(queue, subscription, "/pause"))

    async def resume(self, queue: str, subscription: str = DEFAULT_SUBSCRIPTION) -> None:
        await self._calls.tell("POST", paths.subscription_path(queue, subscription, "/resume"))

    async def seek(
        self, queue: str, start: str | int | datetime, subscription: str = DEFAULT_SUBSCRIPTION
    ) -> None:
        """Move a subscription back or forward. Receipts of what is in flight become void."""
        path = paths.subscription_path(queue, subscription, "/seek")
        await self._calls.tell("POST", path, {"start": start})

    # Messages.

    async def publish(
        self,
        queue: str,
        messages: Sequence[NewMessage | bytes],
        *,
        idempotency_key: str | None = None,
    ) -> Published:
        """Store a batch, all or nothing. The result has each index and id, and the durability.

        A second publish with the same ``idempotency_key`` within the queue's dedup window stores
        nothing, even if another process makes it, and is answered as the first one was.
        """
        publisher = self._publishers.get(queue)
        if publisher is None:
            publisher = self._publishers[queue] = Publisher(
                self._open_transport(), queue, next_key=self._next_key, limits=self._publish_limits
            )
        return await publisher.publish(messages, idempotency_key)

    async def receive(
        self,
        queue: str,
        *,
        subscription: str = DEFAULT_SUBSCRIPTION,
        limit: int = 1,
        wait_seconds: float = 0,
        lease_seconds: float | None = None,
    ) -> list[Delivery]:
        """Lease up to ``limit`` messages; wait up to ``wait_seconds`` (at most 20) for the first.

        It is not sent again when the answer is lost: what was leased is delivered again by itself
        when the lease ends.
        """
        check_seconds("wait_seconds", wait_seconds)
        body: dict[str, object] = {"limit": limit, "wait_seconds": wait_seconds}
        if lease_seconds is not None:
            check_seconds("lease_seconds", lease_seconds)
            body["lease_seconds"] = lease_seconds
        path = paths.subscription_path(queue, subscription, "/receive")
        data = await self._transport.request(
            "POST", path, body=encode_form(body), accept=MSGPACK, wait_seconds=wait_seconds
        )
        answer = decode_msgpack(data, answers.Deliveries)
        return from_queue(answer.deliveries, queue, subscription)

    def consumer(
        self,
        queue: str,
        *,
        subscription: str = DEFAULT_SUBSCRIPTION,
        prefetch: int = 100,
        lease_seconds: float = 30.0,
        wait_seconds: float = 20.0,
    ) -> Consumer:
        """Receive ahead of the need; see `Consumer`.

        ::

            async with client.consumer("orders") as consumer:
                async for delivery in consumer:
                    ...
        """
        return Consumer(
            self,
            queue,
            subscription,
            limit=prefetch,
            lease_seconds=lease_seconds,
            wait_seconds=wait_seconds,
            rng=self._transport.rng,
        )

    async def poll(
        self, queue: str, subscription: str, *, start: int, count: int
    ) -> list[Delivery]:
        """Lease messages by index range."""
        path = paths.subscription_path(queue, subscription, "/poll")
        asked: dict[str, object] = {"start": start, "count": count}
        answer = await self._calls.ask("POST", path, answers.Deliveries, asked)
        return from_queue(answer.deliveries, queue, subscription)

    async def ask_again(self, queue: str, subscription: str, index: int) -> Delivery:
        """Deliver one particular unsettled message once more."""
        path = paths.subscription_path(queue, subscription, "/again")
        delivery = await self._calls.ask("POST", path, Delivery, {"index": index})
        return from_queue([delivery], queue, subscription)[0]

    async def ack(
        self, queue: str, targets: Sequence[Target], subscription: str = DEFAULT_SUBSCRIPTION
    ) -> list[Outcome]:
        """Say that these are done. Targets are deliveries, receipts or message ids. Idempotent."""
        if _are_none(targets):
            return []
        return (await self.settler(queue, subscription).ack(targets))[0]

    async def ack_up_to(
        self, queue: str, index: int, subscription: str = DEFAULT_SUBSCRIPTION
    ) -> int:
        """Say that everything below an index is done. Returns how many messages that settled."""
        return await self.settler(queue, subscription).ack_up_to(index)

    async def nack(
        self,
        queue: str,
        targets: Sequence[Target],
        subscription: str = DEFAULT_SUBSCRIPTION,
        *,
        delay_seconds: float | None = None,
        reason: str = "",
    ) -> list[Outcome]:
        """Say that these failed: deliver them again, after the backoff or ``delay_seconds``."""
        if _are_none(targets):
            return []
        if delay_seconds is not None:
            check_seconds("delay_seconds", delay_seconds)
        settler = self.settler(queue, subscription)
        return (await settler.nack(targets, delay_seconds=delay_seconds, reason=reason))[0]

    async def give_back(
        self, queue: str, targets: Sequence[Target], subscription: str = DEFAULT_SUBSCRIPTION
    ) -> list[Outcome]:
        """Hand back deliveries that nobody has started on: ready again, and not counted."""
        if _are_none(targets):
            return []
        return (await self.settler(queue, subscription).give_back(targets))[0]

    async def extend(
        self,
        queue: str,
        targets: Sequence[Target],
        seconds: float,
        subscription: str = DEFAULT_SUBSCRIPTION,
        *,
        further: bool = False,
    ) -> list[Outcome]:
        """Let the leases end ``seconds`` from now or, with ``further``, that much later.

        With ``further`` it is not sent again when the answer is lost.
        """
        if _are_none(targets):
            return []
        settler = self.settler(queue, subscription)
        return (await settler.extend(targets, seconds, further=further))[0]

    def settler(self, queue: str, subscription: str = DEFAULT_SUBSCRIPTION) -> Settler:
        """To settle without awaiting the answer. Call it inside the event loop."""
        settler = self._settlers.get((queue, subscription))
        if settler is None:
            settler = self._settlers[queue, subscription] = Settler(
                self._open_transport(), queue, subscription, limits=self._settle_limits
            )
        return settler

    async def read(self, queue: str, start: int = 0, limit: int = 100) -> list[Message]:
        """Read messages by index, without touching anybody's progress."""
        path = paths.with_query(paths.queue_path(queue, "/messages"), start=start, limit=limit)
        return from_queue((await self._calls.read(path, answers.Messages)).messages, queue)

    async def view(
        self,
        queue: str,
        subscription: str = DEFAULT_SUBSCRIPTION,
        *,
        settled: bool | None = None,
        start: int = 0,
        limit: int = 100,
    ) -> list[ViewedMessage]:
        """The oldest messages, settled, unsettled or all, with their state for a subscription.

        ``start`` is the index to begin at.
        """
        path = paths.subscription_path(queue, subscription, "/messages")
        if settled is not None and not isinstance(settled, bool):
            raise InvalidArgument(f"settled is {settled!r}: use True, False or None")
        asked = None if settled is None else str(settled).lower()
        path = paths.with_query(path, settled=asked, start=start, limit=limit)
        return from_queue((await self._calls.read(path, answers.Viewed)).messages, queue)

    async def find(self, queue: str, ids: Sequence[str]) -> list[Message | None]:
        """Find messages by id; None for each that the queue does not hold."""
        path = paths.queue_path(queue, "/messages/find")
        wanted = listed("ids", ids, (str,))
        found: list[Message | None] = []
        for start in range(0, len(wanted), _MOST_IDS):
            form: dict[str, object] = {"ids": wanted[start : start + _MOST_IDS]}
            answer = await self._calls.ask("POST", path, answers.Found, form, is_repeatable=True)
            found += answer.messages
        from_queue([message for message in found if message is not None], queue)
        return found

    async def get(self, queue: str, id: str) -> Message:
        """One message by id. Raises `MessageNotFound`."""
        path = paths.message_path(queue, id)
        return from_queue([await self._calls.read(path, Message)], queue)[0]

    # Dead letters and dependencies.

    async def dead_letters(self, queue: str, start: int = 0, limit: int = 100) -> list[Message]:
        """Messages that failed for good, each with its `dead_letter`."""
        path = paths.with_query(paths.queue_path(queue, "/dead-letters"), start=start, limit=limit)
        letters = (await self._calls.read(path, answers.Messages)).messages
        return from_queue(letters, queue + DEAD_LETTER_SUFFIX)

    async def replay(self, queue: str, ids: Sequence[str] | None = None) -> int:
        """Return dead letters to the subscriptions they failed on: all, or those with these ids."""
        return (await self._redrive(queue, "replay", ids))["replayed"]

    async def discard(self, queue: str, ids: Sequence[str] | None = None) -> int:
        """Remove dead letters for good: all, or those with these ids."""
        return (await self._redrive(queue, "discard", ids))["discarded"]

    async def _redrive(self, queue: str, how: str, ids: Sequence[str] | None) -> dict[str, int]:
        path = paths.queue_path(queue, f"/dead-letters/{how}")
        body: dict[str, object] = {"ids": None if ids is None else listed("ids", ids, str)}
        return await self._calls.ask("POST", path, dict[str, int], body)

    async def held(self, queue: str, subscription: str, limit: int = 100) -> list[int]:
        """Indexes that wait for other subscriptions, lowest first."""
        path = paths.subscription_path(queue, subscription, "/held")
        return (await self._calls.read(paths.with_query(path, limit=limit), answers.Held)).indexes

    async def held_messages(
        self, queue: str, subscription: str, limit: int = 100
    ) -> list[HeldMessage]:
        """Like `held`, with the subscriptions that each message waits for."""
        path = paths.subscription_path(queue, subscription, "/held")
        return (await self._calls.read(paths.with_query(path, limit=limit), answers.Held)).messages

    async def graph(self, queue: str) -> Graph:
        """Which subscription waits for which."""
        return await self._calls.read(paths.queue_path(queue, "/graph"), Graph)

    async def test_filter(self, queue: str, filter: str, last: int = 100) -> FilterTest:
        """Try a filter on the newest messages. Raises `InvalidFilter`."""
        path = paths.queue_path(queue, "/filter:test")
        return await self._calls.ask("POST", path, FilterTest, {"filter": filter, "last": last})

    async def release(self, queue: str, subscription: str, indexes: Sequence[int]) -> None:
        """Deliver messages that are held, without waiting for the other subscriptions."""
        path = paths.subscription_path(queue, subscription, "/release")
        await self._calls.tell("POST", path, {"indexes": listed("indexes", indexes, int)})

    # The server itself.

    async def health(self) -> Health:
        """How the server says it is doing. Needs no password. Raises `Unreachable`."""
        return await look_at(self._transport)

    async def log_in(self, username: str, password: str) -> str:
        """Get a token for a name and a password, to be a client's ``token`` until it expires."""
        body: dict[str, object] = {"identifier": username, "password": password}
        return (await self._calls.ask("POST", paths.LOG_IN, answers.LoggedIn, body)).token

    async def users(self) -> list[User]:
        """The users that were added, by name."""
        return await self._calls.read(paths.USERS, list[User])

    async def add_user(
        self, username: str, password: str, *, role: str = "USER", rate_limit: int = 0
    ) -> User:
        """Add a user. Raises `InvalidArgument`, also when there is one of that name."""
        body: dict[str, object] = {"username": username, "password": password, "role": role}
        return await self._calls.ask("POST", paths.USERS, User, {**body, "rateLimit": rate_limit})

    async def alter_user(
        self,
        username: str,
        *,
        password: str | None = None,
        role: str | None = None,
        rate_limit: int | None = None,
    ) -> User:
        """Change what is not None. A new password voids tokens. Raises `UserNotFound`."""
        changes = {"password": password, "role": role, "rateLimit": rate_limit}
        body: dict[str, object] = {k: value for k, value in changes.items() if value is not None}
        return await self._calls.ask("PATCH", paths.user_path(username), User, body)

    async def remove_user(self, username: str) -> None:
        """Remove a user, who is refused and not called back from then on. Raises `UserNotFound`."""
        await self._calls.tell("DELETE", paths.user_path(username))


def _are_none(targets: Sequence[Target]) -> bool:
    """Whether there is nothing to send. (Whatever is not a list is refused elsewhere.)"""
    return not targets and isinstance(targets, Sequence) and not isinstance(targets, str)


def _settings(
    config: QueueConfig | SubscriptionConfig | None, settings: dict[str, Any]
) -> dict[str, Any]:
    if config is None:
        return settings
    if settings:
        raise InvalidArgument("pass either a config or settings, not both")
    return msgspec.structs.asdict(config)
