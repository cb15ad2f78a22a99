"""Topics: consumers that subscribe to them are called back, some of them after others.

All content goes through one bounded queue. A user's subscription to a topic, a filter or both is a
subscription of that queue with a callback; its name begins with the user's id. If a user waits for
others, each of its subscriptions comes after each of theirs. A subscription passes what it does not
match, so a message waits for exactly those that receive it, too.

Who waits for whom is stored with the users, subscriptions are stored with the queue, no single
write covers both, and other servers may be doing the same at this moment. So the order of steps
matters:

- A new subscription has no callback at first. Once it exists, its server looks which others do: of
  two servers that each create one, at least one sees both. It links the subscriptions that must
  wait for the new one, and the new one to those it must wait for. Then the new one skips what was
  published in the meantime, and only then gets its callback. Nothing is delivered on it before all
  of that is done, so nobody can overtake anybody.
- Whatever a crash leaves undone was never answered. `open` completes or removes it. If another
  server was just about to make it, that one begins again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any

import msgspec

from penstock.broker import Broker
from penstock.core.callback import Callback
from penstock.core.config import DEFAULT_SUBSCRIPTION, SubscriptionConfig
from penstock.core.filters import compile_filter
from penstock.core.message import NewMessage
from penstock.errors import (
    Conflict,
    InvalidArgument,
    InvalidDependency,
    PenstockError,
    QueueExists,
    QueueNotFound,
    SubscriptionExists,
    SubscriptionNotFound,
    UserNotFound,
)
from penstock.http.auth.user import User
from penstock.http.auth.users import Users
from penstock.settings import Settings

__all__ = ["Topics"]

_JSON = "application/json"
# The default. It is set again, because a callback that was ordered before had 1.
_MAX_IN_FLIGHT = SubscriptionConfig().max_in_flight

# Per user. Each filter is evaluated at every publish.
MAX_SUBSCRIPTIONS = 100

Configs = dict[str, SubscriptionConfig]


class Topics:
    """The queue of topics. Making one touches nothing; `open` it before requests come."""

    def __init__(self, broker: Broker, users: Users, settings: Settings) -> None:
        self._broker = broker
        self._users = users
        self._settings = settings
        self._queue = settings.topics_queue
        self._is_open = False
        self._changing = asyncio.Lock()

    async def open(self) -> None:
        """If the queue is there: put right what a crash left undone, and apply the settings."""
        async with self._changing:
            try:
                await self._adopt()
            except (QueueNotFound, Conflict):
                return  # whoever needs it creates it, or gets the error
            subscriptions = await self._subscriptions()
            await self._users.refresh()
            for name, config in list(subscriptions.items()):
                if config.callback is None or self._owner(name) is None:
                    await self._end(name)
                    del subscriptions[name]
                else:
                    changes = self._limits(config.callback.url)
                    if msgspec.structs.replace(config, **changes) != config:
                        with suppress(SubscriptionNotFound):
                            await self._broker.alter_subscription(self._queue, name, **changes)
            await self._link(subscriptions, subscriptions)

    async def publish(self, topic: str, content: bytes) -> None:
        """``content`` is JSON. Raises `InvalidArgument`, or what a publish raises."""
        _check_topic(topic)
        message = NewMessage(body=_checked_json(content), content_type=_JSON, topic=topic)
        if not self._is_open:
            await self._make()
        try:
            await self._broker.publish(self._queue, [message])
        except QueueNotFound:
            await self._make()
            await self._broker.publish(self._queue, [message])

    async def subscribe(
        self, user: User, topic: str | None, filter: str | None, url: str
    ) -> tuple[str, str | None]:
        """Returns the subscription's name, and the secret that signs its calls if it is new.

        Raises `InvalidArgument`, `InvalidFilter`, `Conflict` when the user has too many, or
        `UserNotFound` when the user was just removed.
        """
        expression = _expression(topic, filter)
        if "://" not in url:
            url = f"http://{url}"
        name = _name(user, topic, filter)
        limits = self._limits(url)
        SubscriptionConfig(**limits).check()
        await self._make()
        async with self._changing:
            while True:
                config = await self._config(name)
                try:
                    if config is None or config.callback is None:
                        return name, await self._begin(user.id, name, expression, limits)
                    altered = await self._broker.alter_subscription(
                        self._queue, name, paused=False, **limits
                    )
                    return name, altered.secret
                except SubscriptionNotFound:
                    continue  # another server has just removed it

    async def unsubscribe(self, user: User, topic: str | None, filter: str | None) -> None:
        """Raises `SubscriptionNotFound`."""
        name = _name(user, topic, filter)
        async with self._changing:
            try:
                await self._broker.delete_subscription(self._queue, name)
            except (QueueNotFound, SubscriptionNotFound):
                raise SubscriptionNotFound(
                    "there is no subscription with that topic and filter"
                ) from None

    async def add_dependency(self, user: User, others: Sequence[User]) -> None:
        """Raises `InvalidDependency`, which names the cycle, or `UserNotFound`."""
        async with self._changing:
            changed = await self._users.wait_for(user, others)
            try:
                subscriptions = await self._subscriptions()
            except QueueNotFound:
                return  # nobody has subscribed yet
            await self._link(_of(changed.id, subscriptions), subscriptions)

    async def forget(self, user: User) -> None:
        """End the subscriptions of a user who was removed: nobody waits for them any more."""
        async with self._changing:
            try:
                subscriptions = await self._subscriptions()
            except QueueNotFound:
                return
            for name in _of(user.id, subscriptions):
                await self._end(name)

    # The queue.

    async def _make(self) -> None:
        """Create the queue if it does not exist. Raises `Conflict` if it is somebody else's."""
        async with self._changing:
            try:
                await self._adopt()
            except QueueNotFound:
                with suppress(QueueExists):  # another server was faster
                    await self._broker.create_queue(
                        self._queue, retention_seconds=self._settings.retention_minutes * 60
                    )
                await self._adopt()

    async def _adopt(self) -> None:
        """Make sure that the queue is ours. Raises `QueueNotFound`, or `Conflict` if it is not.

        Every queue is created with a subscription `default`. Nobody would read it here, so the
        queue would fill up. Having none is what marks the queue as ours.
        """
        with suppress(SubscriptionNotFound):
            stats = await self._broker.queue_stats(self._queue, only=[DEFAULT_SUBSCRIPTION])
            if stats.next_index:
                raise Conflict(
                    f"queue {self._queue!r} is in use by others, as its subscription "
                    "'default' shows: set PENSTOCK_TOPICS_QUEUE to another name"
                )
            await self._end(DEFAULT_SUBSCRIPTION)
        await self._broker.alter_queue(self._queue, max_messages=self._settings.topics_size)
        self._is_open = True

    # Subscriptions.

    async def _begin(
        self, owner_id: str, name: str, expression: str, limits: dict[str, Any]
    ) -> str | None:
        """Create a subscription and return its secret. If any step fails, it is removed."""
        known = await self._subscriptions()
        if name not in known and len(_of(owner_id, known)) >= MAX_SUBSCRIPTIONS:
            raise Conflict(
                f"a consumer may have {MAX_SUBSCRIPTIONS} subscriptions: end one of them first"
            )
        with suppress(SubscriptionExists):  # half made, here or at another server
            await self._broker.create_subscription(self._queue, name, filter=expression)
        try:
            subscriptions = await self._subscriptions()
            await self._users.refresh()
            owner = self._users.by_id(owner_id)
            if owner is None:
                raise UserNotFound("the user has just been removed")
            await self._link([name, *self._followers(owner, subscriptions)], subscriptions)
            await self._broker.seek(self._queue, "latest", name)
            return (await self._broker.alter_subscription(self._queue, name, **limits)).secret
        except PenstockError:
            # Others may wait for it by now, and nobody will read it, unless another server made it.
            with suppress(PenstockError):
                config = await self._config(name)
                if config is not None and config.callback is None:
                    await self._end(name)
            raise

    async def _end(self, name: str) -> None:
        with suppress(SubscriptionNotFound):  # another server was faster
            await self._broker.delete_subscription(self._queue, name)

    async def _config(self, name: str) -> SubscriptionConfig | None:
        """None if there is no such subscription. Raises `QueueNotFound`."""
        with suppress(SubscriptionNotFound):
            return (await self._broker.subscription_stats(self._queue, name)).config
        return None

    async def _subscriptions(self) -> Configs:
        """Those of users, including users who are gone. Raises `QueueNotFound`."""
        stats = await self._broker.queue_stats(self._queue)
        return {
            one.name: one.config for one in stats.subscriptions if _owner_id(one.name) is not None
        }

    def _owner(self, name: str) -> User | None:
        return self._users.by_id(_owner_id(name) or "")

    def _limits(self, url: str) -> dict[str, Any]:
        workers = self._settings.topics_workers
        return {
            "max_deliveries": self._settings.topics_retries + 1,
            "max_in_flight": _MAX_IN_FLIGHT,
            "callback": Callback(url=url, concurrency=workers, ordered=workers == 1),
        }

    def _parents(self, user: User, subscriptions: Configs) -> tuple[str, ...]:
        """The subscriptions that those of this user wait for."""
        waited = set(user.after)
        return tuple(sorted(name for name in subscriptions if _owner_id(name) in waited))

    def _followers(self, user: User, subscriptions: Configs) -> list[str]:
        """The subscriptions of those who wait for this user."""
        return [
            name
            for name in subscriptions
            if (owner := self._owner(name)) is not None and user.id in owner.after
        ]

    async def _link(self, names: Iterable[str], subscriptions: Configs) -> None:
        """Make each of them wait for those that it should wait for, if they exist."""
        for name in names:
            owner = self._owner(name)
            while owner is not None and name in subscriptions:
                after = self._parents(owner, subscriptions)
                if subscriptions[name].after == after:
                    break
                try:
                    await self._broker.alter_subscription(self._queue, name, after=after)
                    break
                except (SubscriptionNotFound, InvalidDependency):
                    known, subscriptions = subscriptions, await self._subscriptions()
                    if subscriptions.keys() == known.keys():
                        raise  # not because another server has just removed one of them


def _of(user_id: str, subscriptions: Configs) -> list[str]:
    return [name for name in subscriptions if _owner_id(name) == user_id]


def _name(user: User, topic: str | None, filter: str | None) -> str:
    """A valid name, which is the same for the same user, topic and filter."""
    wanted = json.dumps([topic, filter]).encode()
    return f"{user.id}-{blake2b(wanted, digest_size=8).hexdigest()}"


_ID_CHARACTERS, _DIGEST_CHARACTERS = 24, 16
_HEX = frozenset("0123456789abcdef")


def _owner_id(name: str) -> str | None:
    """The id in a subscription's name; None for one that was not made here."""
    id, _, digest = name.partition("-")
    is_ours = (len(id), len(digest)) == (_ID_CHARACTERS, _DIGEST_CHARACTERS)
    return id if is_ours and _HEX.issuperset(id + digest) else None


def _expression(topic: str | None, filter: str | None) -> str:
    """The filter for a topic, a filter or both. Raises `InvalidArgument` or `InvalidFilter`."""
    if filter is not None:
        # By itself, so that it cannot mean something else inside the brackets.
        compile_filter(filter)
    if topic is None:
        if filter is None:
            raise InvalidArgument("give a topic, a filter, or both")
        return filter
    wanted = f"topic == {json.dumps(_check_topic(topic), ensure_ascii=False)}"
    if filter is None:
        return wanted
    # On a line of its own, because it may end in a comment.
    whole = f"{wanted} && (\n{filter}\n)"
    compile_filter(whole)
    return whole


def _check_topic(topic: str) -> str:
    if not topic.isprintable():
        raise InvalidArgument("the topic holds characters that cannot be printed: leave them out")
    return topic


def _checked_json(content: bytes) -> bytes:
    try:
        msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as exc:
        raise InvalidArgument(f"the content is not JSON: {exc}") from None
    return content
