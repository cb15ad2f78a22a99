"""Rebuilding the hot store from the record."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from penstock.core.limits import DEAD_LETTER_SUFFIX, EVENTS_SUFFIX
from penstock.core.message import Message, parse_message_id
from penstock.errors import QueueNotFound, StoreUnavailable
from penstock.storage import base
from penstock.storage.archiving import HotStore, QueueState, Recovered, without_new_letters
from penstock.storage.mongo.archive import Archive
from penstock.storage.mongo.documents import message_document
from penstock.storage.mongo.locks import Locks
from penstock.storage.mongo.marks import unmark_updates

__all__ = ["index_of", "is_lost", "recover"]

logger = logging.getLogger(__name__)

_LOCK = "rebuild"
_LOCK_RETRY_SECONDS = 0.1
_PENDING_WRITES_SECONDS = 0.1
_CHUNK = 1000
_LIST = "the list of queues"  # in place of a queue: none can have this name


async def recover(
    hot: HotStore,
    archive: Archive,
    locks: Locks,
    identity: str,
    suspects: Mapping[str, int],
    *,
    trusts_mark: bool,
) -> tuple[Recovered, dict[str, str]]:
    """Make the hot store complete: one server does, while the others wait.

    With ``trusts_mark``, a server that waits is done once the hot store is marked as complete. The
    mark may be older than a loss, so that is enough only for one that has looked before.

    Also returns what could not be checked because a node of the hot store is away, with the reason.
    Then the hot store is not marked as complete, unless it was before.

    A missing queue is rebuilt; so is one that has lost its newest messages, or the one at a
    suspected index: what it has in their place was never answered. A queue without a record gets
    one.
    """
    async with locks.keeping(_LOCK):
        while not await locks.take(_LOCK):
            await asyncio.sleep(_LOCK_RETRY_SECONDS)
            if trusts_mark and await hot.is_complete(identity):
                return Recovered(restored={}, archived={}), {}
        was_complete = await hot.is_complete(identity)
        recovery = _Recovery(hot, archive, locks, suspects)
        recovered = await recovery.run()
        if was_complete or not recovery.unchecked:
            await hot.set_complete(identity)
    return recovered, recovery.unchecked


def index_of(id: str) -> int:
    """The index that the id of a message carries."""
    parsed = parse_message_id(id)
    assert parsed is not None
    return parsed.index


async def is_lost(hot: HotStore, queue: str, id: str) -> bool:
    """Whether the hot store lacks a message that it has not removed regularly.

    Raises `QueueNotFound`.
    """
    message = parse_message_id(id)
    assert message is not None
    found = await hot.read(queue, base.Span(start=message.index, limit=1))
    if found and found[0].index == message.index:
        return found[0].id != id and found[0].salt == message.salt
    now = await hot.snapshot(queue)
    if now is None:
        raise QueueNotFound(f"there is no queue {queue!r}: create it first")
    return now.salt == message.salt and now.first <= message.index


class _Recovery:
    """One run of `recover`. `unchecked`: queues that could not be checked, with the reason."""

    def __init__(
        self, hot: HotStore, archive: Archive, locks: Locks, suspects: Mapping[str, int]
    ) -> None:
        self._hot = hot
        self._archive = archive
        self._locks = locks
        self._suspects = suspects
        self._restored: dict[str, int] = {}
        self._archived: dict[str, int] = {}
        self.unchecked: dict[str, str] = {}

    async def run(self) -> Recovered:
        states = await self._archive.states()
        known = {state.name for state in states}
        # Events first, so that nobody makes them anew for a queue that is back.
        for state in sorted(states, key=lambda one: not one.is_told):
            with self._skip_if_away(state.name):
                if await self._is_damaged(state):
                    await self._restore(state.name)
                if state.config.events and state.name + EVENTS_SUFFIX not in known:
                    # The server that created the queue died before its events queue had a record.
                    change = base.AlterQueue(queue=state.name, changes={"events": True})
                    with suppress(QueueNotFound):  # deleted meanwhile
                        await self._hot.define(change)
        with self._skip_if_away(_LIST):
            for name in set(await self._hot.names()) - known:
                # Names are added before their queues, so there may be one without.
                with self._skip_if_away(name), suppress(QueueNotFound):
                    await self._archive_queue(name)
        return Recovered(restored=self._restored, archived=self._archived)

    @contextmanager
    def _skip_if_away(self, what: str) -> Iterator[None]:
        """Note what could not be checked because a node of the hot store is away, and go on."""
        try:
            yield
        except StoreUnavailable as exc:
            if self._archive.problem is not None:
                raise
            self.unchecked[what] = str(exc)

    async def _is_damaged(self, state: QueueState) -> bool:
        """Whether a queue is missing, has old data, or has lost messages."""
        now = await self._hot.snapshot(state.name)
        if now is None or now.is_behind(state):
            return True
        try:
            return now.salt == state.salt and await self._has_lost_messages(now)
        except QueueNotFound:
            return True

    async def _restore(self, queue: str) -> None:
        """Rebuild a queue. It cannot be deleted meanwhile; if it was before, it stays so."""
        async with self._locks.held(queue):
            state = await self._archive.state(queue)
            _, is_being_deleted = await self._archive.saved_at(queue)
            if state is not None and not is_being_deleted and await self._is_damaged(state):
                await self._rebuild(state)

    async def _rebuild(self, state: QueueState) -> None:
        had_from = None
        if await self._hot.version(state.name) is not None:
            logger.warning("queue %s has lost messages: it is rebuilt", state.name)
            # Callers that find it missing wait until it is complete again.
            await self._hot.set_complete("")
            dropped = await self._hot.drop(state.name)
            if dropped is not None:
                had_from = dropped.first
                if not dropped.is_behind(state):
                    recorded = 0 if state.letters is None else state.letters.next
                    dropped = without_new_letters(dropped, recorded)
                    state = max(dropped, state, key=lambda one: one.at)
        if not self._restored:
            # Wait for writes that were on their way to the record; later ones are checked for.
            await asyncio.sleep(_PENDING_WRITES_SECONDS)
        # An attempt that broke off may have restored its dead letters, as of another state.
        if await self._hot.version(state.name + DEAD_LETTER_SUFFIX) is not None:
            await self._hot.drop(state.name + DEAD_LETTER_SUFFIX)
        letters = state.letters
        if letters is not None:
            await self._hot.restore(letters, self._messages(letters, stop=letters.next))
        # A server may have made marks, and died before the record had the state that they are from.
        await self._archive.update(state.name, list(unmark_updates(state)))
        self._restored[state.name] = 0
        await self._hot.restore(state, self._messages(state), had_from)
        logger.info("queue %s is rebuilt: %d messages", state.name, self._restored[state.name])

    async def _has_lost_messages(self, now: QueueState) -> bool:
        """Whether the newest message in the record, or the suspected one, is lost."""
        ids = await self._archive.ids(now.name, now.salt, self._suspects.get(now.name))
        return any([await is_lost(self._hot, now.name, id) for id in ids])

    async def _messages(
        self, state: QueueState, stop: int | None = None
    ) -> AsyncIterator[Sequence[Message]]:
        """The messages to restore. Counts them unless they are dead letters."""
        async for part in self._archive.messages(state.name, state.salt, stop):
            if stop is None:
                self._restored[state.name] += len(part)
            yield part

    async def _archive_queue(self, queue: str) -> None:
        """Archive a queue that existed before there was an archive."""
        count = at = 0
        while found := await self._hot.read(queue, base.Span(start=at, limit=_CHUNK)):
            await self._archive.insert(queue, [message_document(message) for message in found])
            count += len(found)
            at = found[-1].index + 1
        self._archived[queue] = count
