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
from penstock.client.consumer import Consumer
from penstock.client.defined import DefinedSubscription
from penstock.client.errors import ClientClosed
from penstock.client.health import Health, look_at
from penstock.client.json_calls import JsonCalls, encode_form
from penstock.client.message import Delivery, Message, Published, from_queue
from penstock.client.publishing import Publisher, key_maker
from penstock.client.retry import Retry
from penstock.client.settling import Settler, Target
from penstock.client.transport import PACKED, Transport, decode_packed
from penstock.client.user import User
from penstock.core.config import DEFAULT_SUBSCRIPTION, QueueConfig, SubscriptionConfig
from penstock.core.filter_test import FilterTest
from penstock.core.graph import Graph, HeldMessage
from penstock.core.message import NewMessage
from penstock.core.outcome import Outcome
from penstock.core.stats import QueueStats, SubscriptionStats
from penstock.errors import InvalidArgument

__all__ = ["AsyncClient"]

_PUBLISH_ITEMS = 1000
_PUBLISH_BYTES = 4 * 1024 * 1024
_SETTLE_CALLS = 1000
_SETTLE_BYTES = 512 * 1024


class AsyncClient:
    """A client of a Penstock server. Close it, or use it as an async context manager.

    It has the methods of `penstock.Broker`, so that a program can move from an embedded queue to
    a served one. Errors are those of `penstock.errors` and `penstock.client.errors`.

    - ``username`` and ``password`` go by HTTP Basic; a ``token`` takes their place.
    - Concurrent `publish` calls of one queue go in one request, and so do concurrent `ack`,
      `nack` and `extend` calls of one subscription. Each caller gets its own answer or error.
      ``linger_seconds`` is how long the first one waits for others; 0 is one turn of the loop.
      ``requests`` publishes of a queue are under way at once; with 1, calls that were made at the
      same time are carried out in the order in which they were made. Whoever waits for an answer
      before the next call has that order anyway.
    - ``retry`` says how often a request is sent again, where that is safe. To make publishing
      safe each request gets an idempotency key, which the server remembers for the queue's
      ``dedup_window_seconds``. ``is_idempotent=False`` leaves it out, and then a publish whose
      answer was lost is not sent again.
    - ``timeout_seconds`` is the patience for one answer; a long poll's own wait comes on top.
    - ``tls`` says whom to trust behind an https url; without it, whom the machine trusts.

    It belongs to the event loop in which it is first used, and takes no more calls once that has
    ended (`ClientClosed`).
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
        # Others would wait for ever, or not at all.
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
        if self._transport.has_lost_its_loop:
            return  # with the calls that were under way
        for publisher in self._publishers.values():
            await publisher.close()
        for settler in self._settlers.values():
            await settler.close()
        await self._transport.close()

    async def cut_off(self) -> None:
        """Let go of the connections at once: calls under way fail. `close` it all the same."""
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
        """With its subscription ``default``. Settings are those of `QueueConfig`."""
        body = {"name": name, **_settings(config, settings)}
        return await self._calls.ask("POST", paths.QUEUES, QueueStats, body)

    async def ensure_queue(
        self, /, name: str, config: QueueConfig | None = None, **settings: Any
    ) -> QueueStats:
        """As `create_queue`, if it is absent. One that is there is answered as it is.

        Raises `QueueExists` when that one has other values for these settings.
        """
        path, body = paths.queue_path(name), _settings(config, settings)
        return await self._calls.ask("PUT", path, QueueStats, body, is_repeatable=True)

    async def alter_queue(self, /, name: str, **settings: Any) -> None:
        await self._calls.tell("PATCH", paths.queue_path(name), settings)

    async def delete_queue(self, name: str) -> None:
        """With its messages, subscriptions and dead letters."""
        await self._calls.tell("DELETE", paths.queue_path(name))

    async def purge_queue(self, name: str) -> int:
        """Remove every message, for every subscription; returns how many. Dead letters stay."""
        answer = await self._calls.ask("POST", paths.queue_path(name, "/purge"), dict[str, int])
        return answer["purged"]

    async def queues(self, *, after: str | None = None, limit: int = 100) -> list[QueueStats]:
        """A page of queues by name; the next one starts ``after`` the last name of this one."""
        path = paths.with_query(paths.QUEUES, after=after, limit=limit)
        return (await self._calls.read(path, answers.Queues)).queues

    async def queue_stats(self, name: str) -> QueueStats:
        return await self._calls.read(paths.queue_path(name), QueueStats)

    async def stats(self) -> list[QueueStats]:
        """Of every queue, by name."""
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
        """Settings are those of `SubscriptionConfig`. ``start``: earliest, latest, index, time.

        With a callback the answer has the secret that signs its calls: nothing shows it again.
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
    ) -> DefinedSubscription:
        """As `create_subscription`, if it is absent. One that is there is answered as it is.

        Raises `SubscriptionExists` when that one has other settings.
        """
        body = {"start": start, **_settings(config, settings)}
        path = paths.subscription_path(queue, name)
        return await self._calls.ask("PUT", path, DefinedSubscription, body, is_repeatable=True)

    async def alter_subscription(
        self, /, queue: str, name: str, **settings: Any
    ) -> DefinedSubscription:
        """As it is now, with a secret if this gave it its first callback."""
        path = paths.subscription_path(queue, name)
        return await self._calls.ask("PATCH", path, DefinedSubscription, settings)

    async def rotate_secret(self, queue: str, subscription: str) -> str:
        """A new secret for its callbacks. Until the next rotation the former one signs as well."""
        path = paths.subscription_path(queue, subscription, "/secret/rotate")
        return (await self._calls.ask("POST", path, dict[str, str]))["secret"]

    async def delete_subscription(self, queue: str, name: str) -> None:
        """What waited for it alone is released."""
        await self._calls.tell("DELETE", paths.subscription_path(queue, name))

    async def subscriptions(self, queue: str) -> list[SubscriptionStats]:
        path = paths.queue_path(queue, "/subscriptions")
        return (await self._calls.read(path, answers.Subscriptions)).subscriptions

    async def subscription_stats(
        self, queue: str, subscription: str = DEFAULT_SUBSCRIPTION
    ) -> SubscriptionStats:
        path = paths.subscription_path(queue, subscription)
        return await self._calls.read(path, SubscriptionStats)

    async def pause(self, queue: str, subscription: str = DEFAULT_SUBSCRIPTION) -> None:
        """Deliver nothing on it until it is resumed. Leases go on."""
        await self._calls.tell("POST", paths.subscription_path(queue, subscription, "/pause"))

    async def resume(self, queue: str, subscription: str = DEFAULT_SUBSCRIPTION) -> None:
        await self._calls.tell("POST", paths.subscription_path(queue, subscription, "/resume"))

    async def seek(
        self, queue: str, start: str | int | datetime, subscription: str = DEFAULT_SUBSCRIPTION
    ) -> None:
        """Go back or forward. Deliveries in flight become void."""
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
        """Store a batch, all of it or nothing. The result states index, id and durability.

        With an ``idempotency_key`` of your own, the same publish within the queue's dedup window
        is stored once, even by another process.
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
        """Lease messages. With ``wait_seconds`` (up to 20) it waits that long for the first one.

        It is not sent again when its answer is lost: what was leased comes again by itself when
        the lease ends.
        """
        check_seconds("wait_seconds", wait_seconds)
        body: dict[str, object] = {"limit": limit, "wait_seconds": wait_seconds}
        if lease_seconds is not None:
            check_seconds("lease_seconds", lease_seconds)
            body["lease_seconds"] = lease_seconds
        path = paths.subscription_path(queue, subscription, "/receive")
        data = await self._transport.request(
            "POST", path, body=encode_form(body), accept=PACKED, wait_seconds=wait_seconds
        )
        answer = decode_packed(data, answers.Deliveries)
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
        """Receive ahead: ``async with client.consumer("orders") as c: async for delivery in c``."""
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
        """Lease by index range."""
        path = paths.subscription_path(queue, subscription, "/poll")
        asked: dict[str, object] = {"start": start, "count": count}
        answer = await self._calls.ask("POST", path, answers.Deliveries, asked)
        return from_queue(answer.deliveries, queue, subscription)

    async def ask_again(self, queue: str, subscription: str, index: int) -> Delivery:
        """Have one particular unsettled message delivered once more."""
        path = paths.subscription_path(queue, subscription, "/again")
        delivery = await self._calls.ask("POST", path, Delivery, {"index": index})
        return from_queue([delivery], queue, subscription)[0]

    async def ack(
        self, queue: str, targets: Sequence[Target], subscription: str = DEFAULT_SUBSCRIPTION
    ) -> list[Outcome]:
        """Done with these. Targets are deliveries, receipts or message ids; idempotent."""
        if _are_none(targets):
            return []
        return (await self.settler(queue, subscription).ack(targets))[0]

    async def ack_up_to(
        self, queue: str, index: int, subscription: str = DEFAULT_SUBSCRIPTION
    ) -> int:
        """Done with everything below an index; returns how many that settled."""
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
        """Not done: deliver them again, after the backoff or ``delay_seconds``."""
        if _are_none(targets):
            return []
        if delay_seconds is not None:
            check_seconds("delay_seconds", delay_seconds)
        settler = self.settler(queue, subscription)
        return (await settler.nack(targets, delay_seconds=delay_seconds, reason=reason))[0]

    async def give_back(
        self, queue: str, targets: Sequence[Target], subscription: str = DEFAULT_SUBSCRIPTION
    ) -> list[Outcome]:
        """Not begun with: they are ready again, and the delivery does not count."""
        if _are_none(targets):
            return []
        return (await self.settler(queue, subscription).give_back(targets))[0]

    async def extend(
        self,
        queue: str,
        targets: Sequence[Target],
        seconds: float,
        subscription: str = DEFAULT_SUBSCRIPTION,
    ) -> list[Outcome]:
        """Still at it: the leases end ``seconds`` from now."""
        if _are_none(targets):
            return []
        return (await self.settler(queue, subscription).extend(targets, seconds))[0]

    def settler(self, queue: str, subscription: str = DEFAULT_SUBSCRIPTION) -> Settler:
        """For those who settle without waiting for the answer. Call it inside the event loop."""
        settler = self._settlers.get((queue, subscription))
        if settler is None:
            settler = self._settlers[queue, subscription] = Settler(
                self._open_transport(), queue, subscription, limits=self._settle_limits
            )
        return settler

    async def read(self, queue: str, start: int = 0, limit: int = 100) -> list[Message]:
        """Messages by index, without touching anybody's progress."""
        path = paths.with_query(paths.queue_path(queue, "/messages"), start=start, limit=limit)
        return from_queue((await self._calls.read(path, answers.Messages)).messages, queue)

    async def get(self, queue: str, id: str) -> Message:
        """One message by id. Raises `MessageNotFound`."""
        path = paths.message_path(queue, id)
        return from_queue([await self._calls.read(path, Message)], queue)[0]

    # Dead letters and dependencies.

    async def dead_letters(self, queue: str, start: int = 0, limit: int = 100) -> list[Message]:
        """Messages that failed for good, each with its `dead_letter`."""
        path = paths.with_query(paths.queue_path(queue, "/dead-letters"), start=start, limit=limit)
        return from_queue((await self._calls.read(path, answers.Messages)).messages, queue)

    async def replay(self, queue: str, ids: Sequence[str] | None = None) -> int:
        """Give dead letters back to the subscriptions they failed on: all, or those of some ids."""
        return (await self._redrive(queue, "replay", ids))["replayed"]

    async def discard(self, queue: str, ids: Sequence[str] | None = None) -> int:
        """Remove dead letters for good: all, or those of some ids."""
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
        """As `held`, with the subscriptions that each of them waits for."""
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
        """Deliver messages although a subscription they wait for has not taken them."""
        path = paths.subscription_path(queue, subscription, "/release")
        await self._calls.tell("POST", path, {"indexes": listed("indexes", indexes, int)})

    # The server itself.

    async def health(self) -> Health:
        """How the server is, in its own words. Needs no password; raises `Unreachable`."""
        return await look_at(self._transport)

    async def log_in(self, username: str, password: str) -> str:
        """A token for a name and a password, to be a client's ``token``. It ends with its time."""
        body: dict[str, object] = {"identifier": username, "password": password}
        return (await self._calls.ask("POST", paths.LOG_IN, answers.LoggedIn, body)).token

    async def users(self) -> list[User]:
        """Those that were added, by name."""
        return await self._calls.read(paths.USERS, list[User])

    async def add_user(
        self, username: str, password: str, *, role: str = "USER", rate_limit: int = 0
    ) -> User:
        """Raises `InvalidArgument` also where there is one of that name."""
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
        """What is None stays. Another password voids tokens. Raises `UserNotFound`."""
        changes = {"password": password, "role": role, "rateLimit": rate_limit}
        body: dict[str, object] = {k: value for k, value in changes.items() if value is not None}
        return await self._calls.ask("PATCH", paths.user_path(username), User, body)

    async def remove_user(self, username: str) -> None:
        """It is refused from then on, and called back no more. Raises `UserNotFound`."""
        await self._calls.tell("DELETE", paths.user_path(username))


def _are_none(targets: Sequence[Target]) -> bool:
    """Whether nothing has to be sent. (What is no list is left for others to refuse.)"""
    return not targets and isinstance(targets, Sequence) and not isinstance(targets, str)


def _settings(
    config: QueueConfig | SubscriptionConfig | None, settings: dict[str, Any]
) -> dict[str, Any]:
    if config is None:
        return settings
    if settings:
        raise InvalidArgument("pass either a config or settings, not both")
    return msgspec.structs.asdict(config)
