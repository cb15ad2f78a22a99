"""All queues of a store: their names, their stats, and what is due in each of them.

A queue whose node is away does not affect the others. The list of queues is one key on some node,
which may be away as well: then the queues that this server knows are used.
"""

from __future__ import annotations

from penstock.core.callback import CallbackTarget
from penstock.core.limits import DEAD_LETTER_SUFFIX, EVENTS_SUFFIX, is_name
from penstock.core.stats import KnownStats, QueueStats
from penstock.errors import StorageError, StoreUnavailable
from penstock.storage.base import LetterWatch
from penstock.storage.redis.definitions import microseconds
from penstock.storage.redis.messages import to_letters
from penstock.storage.redis.stats import parse_stats
from penstock.storage.redis.steps import Steps
from penstock.storage.redis.subscribing import RESERVATION_SECONDS

__all__ = ["Overview"]

CONSUMER_IDLE_MS = 3_600_000
"""How long a server that receives nothing stays listed as a consumer of a group."""
# How many new dead letters of a queue are reported per tick; the others are only counted.
_MOST_LETTERS = 100
_OWN_AND_LETTERS = ("", DEAD_LETTER_SUFFIX)


class Overview:
    """Goes through the queues one by one, each with its dead letters."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._listed: set[str] = set()  # as of the last time the list was read
        self.watch: LetterWatch | None = None
        """Told of dead letters when a queue is swept, so that consumers do not pay for it."""

    async def names(self) -> list[str]:
        """The names of all queues, without dead-letter queues."""
        found = await self._steps.command("SMEMBERS", self._steps.keys.queues)
        self._listed = {name.decode() for name in found}
        return sorted(self._listed)

    async def names_or_known(self) -> tuple[list[str], StoreUnavailable | None]:
        """Like `names`; if the list cannot be read, the names that this server knows, and why."""
        try:
            return await self.names(), None
        except StoreUnavailable as exc:
            return sorted(self._listed | self._steps.names_of_known()), exc

    async def tell_events(self, queue: str) -> None:
        """Publish pending events if this may be an events queue."""
        if queue.endswith(EVENTS_SUFFIX) and is_name(queue):
            await self._steps.tell_events(queue)

    # Figures.

    async def stats(self, after: str, limit: int | None) -> KnownStats:
        names, failure = await self.names_or_known()
        found: list[QueueStats] = []
        missing: dict[str, str] = {}
        with_letters = [(name + suffix, name) for name in names for suffix in _OWN_AND_LETTERS]
        for one, name in sorted(both for both in with_letters if both[0] > after):
            if limit is not None and len(found) + len(missing) >= limit:
                break
            if name not in missing:
                try:
                    found += await self._stats_of(one)
                except StoreUnavailable as exc:
                    missing[name] = str(exc)
        unlisted = None if failure is None else str(failure)
        return KnownStats(queues=found, missing=missing, unlisted=unlisted)

    async def _stats_of(self, name: str) -> list[QueueStats]:
        """Empty if there is no such queue: most have no dead letters."""
        await self.tell_events(name)
        answer = await self._steps.run("stats", self._steps.keys.queue(name), self._steps.time, b"")
        return [parse_stats(name, answer)] if answer else []

    async def callbacks(self, queue: str | None) -> list[CallbackTarget]:
        """Those of all queues, or of one."""
        if queue is not None:
            return await self._callbacks_of(queue)
        names, _ = await self.names_or_known()
        return [
            target
            for name in names
            for suffix in _OWN_AND_LETTERS
            for target in await self._callbacks_of(name + suffix)
        ]

    async def _callbacks_of(self, queue: str) -> list[CallbackTarget]:
        definition = await self._steps.learn_or_recall(queue)
        if definition is None:
            return []
        return [
            CallbackTarget(
                queue=queue,
                subscription=reader.name,
                callback=reader.config.callback,
                paused=reader.config.paused,
                secrets=reader.secrets,
            )
            for reader in definition.readers.values()
            if reader.config.callback is not None
        ]

    # What is due.

    async def sweep(self, every_seconds: float) -> None:
        """See `RedisStore.tick`."""
        failure: StorageError | None
        names, failure = await self.names_or_known()
        if failure is None:
            self._steps.keep_only(self._listed)
        for name in names:
            try:
                await self.tell_events(name)
                await self._sweep(name, every_seconds)
            except StorageError as exc:
                failure = exc
        if failure is not None:
            raise failure

    async def _sweep(self, name: str, every_seconds: float) -> None:
        answer = await self._steps.run(
            "sweep",
            self._steps.keys.queue(name),
            self._steps.time,
            microseconds(every_seconds),
            CONSUMER_IDLE_MS,
            0 if self.watch is None else _MOST_LETTERS,
            microseconds(RESERVATION_SECONDS),
        )
        if self.watch is None or answer in (0, 1):
            return
        left_out, *letters = answer
        for id, letter in to_letters(name, letters):
            self.watch.buried(id, letter)
        if left_out:
            self.watch.more(name, left_out)
