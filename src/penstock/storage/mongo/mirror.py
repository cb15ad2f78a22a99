"""Copying consumed marks, delivery counts and definitions from the hot store to the record.

The record has a snapshot of each queue, as of one moment, so nothing needs to be remembered in
between: if a copy fails, or a server dies before it makes one, the next copy by any server makes up
for it. Until then the record is behind by what happened in between. Each queue is copied by one
server at a time.

A queue may have many subscriptions. Of these, a copy reads and writes just those that have changed
since this server's last one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack

from penstock.core.limits import DEAD_LETTER_SUFFIX, EVENTS_SUFFIX, is_name
from penstock.core.message import Delivery, parse_message_id
from penstock.core.runs import Runs
from penstock.errors import QueueNotFound, StorageError, StoreUnavailable
from penstock.storage import base
from penstock.storage.archiving import HotStore, QueueState
from penstock.storage.mongo.archive import Archive, IndexTaken
from penstock.storage.mongo.documents import letter_document, message_document
from penstock.storage.mongo.locks import Locks
from penstock.storage.mongo.marks import (
    added,
    consumed,
    count_updates,
    index_condition,
    mark_updates,
)

__all__ = ["Mirror", "is_recorded", "source_of"]

logger = logging.getLogger(__name__)

MARK_SECONDS = 0.5
"""How soon after a change a copy is made."""
PASS_SECONDS = 10.0
"""How often all queues are copied, for changes that no call has made, such as expiry."""
SWEEP_SECONDS = 60.0
_MAX_COUNTS = 100_000
_CHUNK = 500


def is_recorded(queue: str) -> bool:
    """Whether the queue can have a record of its own."""
    return is_name(queue) and not queue.endswith(DEAD_LETTER_SUFFIX)


def source_of(queue: str) -> str:
    """The queue in whose record this one is: dead letters are part of their queue's record."""
    return queue.removesuffix(DEAD_LETTER_SUFFIX)


class _Failures:
    """The errors of several queues, of which an `IndexTaken` is raised first: it can be mended."""

    def __init__(self) -> None:
        self._first: StorageError | None = None

    def add(self, error: StorageError) -> None:
        if self._first is None or isinstance(error, IndexTaken):
            self._first = error

    def raise_any(self) -> None:
        if self._first is not None:
            raise self._first


class Mirror:
    """Copies the queues that this server has changed and, periodically, all of them."""

    def __init__(self, hot: HotStore, archive: Archive, locks: Locks) -> None:
        self._hot = hot
        self._archive = archive
        self._locks = locks
        # By queue.
        self._changed: set[str] = set()
        self._saved: dict[str, QueueState] = {}  # in the record, as far as this server knows
        self._counts: dict[str, dict[int, int]] = {}  # deliveries by index, not in the record yet
        self._ends: dict[str, tuple[int, int]] = {}  # next index at the last two `copy_all`

    def mark_changed(self, queue: str) -> None:
        """Let the next `copy_changed` copy this queue."""
        self._changed.add(source_of(queue))

    def note_deliveries(self, queue: str, deliveries: Sequence[Delivery]) -> None:
        """Note delivery counts for the next copy, up to a bound: they only inform people."""
        counts = self._counts.setdefault(queue, {})
        if len(counts) < _MAX_COUNTS:
            counts.update((delivery.index, delivery.deliveries) for delivery in deliveries)

    async def copy_changed(self) -> None:
        """Copy the changed queues. What fails is tried again the next time.

        It does not affect the other queues. Its error is raised at the end, unless MongoDB or a
        node of the hot store is away.
        """
        changed, self._changed = self._changed, set()
        failed = _Failures()
        for queue in sorted(changed):
            try:
                await self.copy(queue)
            except StoreUnavailable:
                if self._archive.problem is not None:
                    self._changed |= changed
                    return
                self._changed.add(queue)
            except StorageError as exc:
                self._changed.add(queue)
                failed.add(exc)
            except BaseException:
                self._changed |= changed
                raise
        failed.raise_any()

    async def copy_all(self) -> None:
        """Copy every queue, and remove the records of deleted ones.

        A message may be consumed before its document is written, and then its mark is lost. So the
        marks of messages since the last two calls are made again.

        Raises `IndexTaken` if the hot store has come back with old data, and lacks messages.

        A queue that fails does not affect the others; the error is raised at the end.
        """
        failed = _Failures()
        for queue in sorted(
            {*await self._hot.known_names(), *await self._archive.names_being_deleted()}
        ):
            try:
                await self.copy(queue, repeat_from=self._ends.get(queue, (0, 0))[0])
            except StorageError as exc:
                if isinstance(exc, StoreUnavailable) and self._archive.problem is not None:
                    raise
                failed.add(exc)
                continue
            state = self._saved.get(queue)
            if state is None:
                self._ends.pop(queue, None)
            else:
                self._ends[queue] = (self._ends.get(queue, (0, 0))[1], state.next)
        failed.raise_any()

    async def copy(self, queue: str, *, repeat_from: int | None = None) -> None:
        """Bring the record up to date with the hot store.

        Marks that were made before are skipped, except from index ``repeat_from`` on. Raises
        `StoreUnavailable` also if the hot store loses the queue meanwhile.
        """
        async with self._locks.held(queue):
            try:
                await self._copy(queue, repeat_from)
            except QueueNotFound as exc:
                # Whoever asked may have asked for another queue, and must not be told of this one.
                raise StoreUnavailable(f"queue {queue!r} was lost while it was copied") from exc

    async def delete(self, change: base.DeleteQueue, gone: asyncio.Event) -> None:
        """Delete a queue with its events and its record. A queue that just disappears is rebuilt.

        ``gone`` is set once a queue of this name may be created again, or if this fails.
        """
        names = [change.queue]
        try:
            events = await self._archive.state(change.queue + EVENTS_SUFFIX)
            if events is not None and events.is_told:
                names.append(events.name)
            async with AsyncExitStack() as locks:
                for name in names:
                    await locks.enter_async_context(self._locks.held(name))
                    await self._archive.mark_deleting(name)
                try:
                    await self._hot.define(change)
                finally:
                    gone.set()
                    # Whether or not it is deleted now, the record follows.
                    for name in names:
                        self._saved.pop(name, None)
                        await self._copy(name, None)
        finally:
            gone.set()

    async def finish_deleting(self, queue: str) -> None:
        """Wait until nothing of a deleted queue is left in the record.

        To be called before one of its name is created: what is published to that one must not be
        removed with what the former has left.
        """
        if is_recorded(queue):
            _, is_being_deleted = await self._archive.saved_at(queue)
            if is_being_deleted:
                await self.copy(queue)

    async def _copy(self, queue: str, repeat_from: int | None) -> None:
        known = self._saved.get(queue)
        newest = []
        if repeat_from is not None:
            # Now and then as a whole, so that nothing depends on what was read before.
            newest = [] if known is None else await self._archive.ids(queue, known.salt, None)
            known = None
        state = await self._hot.snapshot(queue, known)
        if state is None:
            self._saved.pop(queue, None)
            if queue in await self._archive.names_being_deleted():
                await self._archive.forget(queue)
            return
        for id in newest:
            _check_has(state, id)
        before, is_being_deleted = await self._saved_state(state)
        if before is not None and not is_being_deleted and state.is_behind(before):
            raise _old_data(state, before.next)
        if before is not None and before.salt != state.salt and not is_being_deleted:
            logger.error(
                "queue %s was made anew although the one before had not been deleted: the old "
                "messages stay in MongoDB, with salt %d",
                queue,
                before.salt,
            )
            before = None
        elif before is None or before.salt != state.salt:
            await self._remove_former_queue(state)
            before = None
        counts = self._counts.pop(queue, {})
        try:
            if state.is_told:
                await self._copy_events(before, state)
            await self._archive.update(
                queue,
                [*mark_updates(before, state, repeat_from), *count_updates(state.salt, counts)],
            )
            is_new = before is None or is_being_deleted or _differs(before, state)
            if is_new:
                await self._archive.ensure_ttl_indexes(state)
                if state.letters is not None:
                    await self._copy_letters(queue, before and before.letters, state.letters)
                await self._check_lock(queue)
                await self._archive.save(state, before)
            if state.letters is not None:
                await self._remove_letters(before and before.letters, state.letters, repeat_from)
        except BaseException:
            self._counts[queue] = counts | self._counts.get(queue, {})
            raise
        # Keep the state that was saved, not a later one that is equal.
        self._saved[queue] = state if is_new or before is None else before

    async def _remove_former_queue(self, state: QueueState) -> None:
        """Remove what a deleted queue of the same name has left."""
        for name in (state.name, state.name + DEAD_LETTER_SUFFIX):
            await self._archive.remove(name, [{"salt": {"$ne": state.salt}}])

    async def _saved_state(self, state: QueueState) -> tuple[QueueState | None, bool]:
        """The state in the record, and whether the queue is being deleted.

        It is read only if another server has written it.
        """
        known = self._saved.get(state.name)
        at, is_being_deleted = await self._archive.saved_at(state.name)
        if known is not None and at == known.at:
            return known, is_being_deleted
        return await self._archive.state(state.name), is_being_deleted

    async def purge(self, queue: str) -> None:
        """Remove purged messages from the record at once."""
        state = self._saved.get(queue)
        if state is not None:
            # Documents of settled dead letters are gone already: see `_copy_letters`.
            gone = {"salt": state.salt, "index": {"$lt": state.first}, "done": True}
            await self._archive.remove(queue, [gone])

    async def _copy_events(self, before: QueueState | None, events: QueueState) -> None:
        """Archive events: no call publishes them, so their documents are made here.

        The last one is inserted once more, to notice if the hot store has another in its place.
        """
        at = events.first if before is None else max(0, before.next - 1)
        while at < events.next:
            found = await self._hot.read(events.name, base.Span(start=at, limit=_CHUNK))
            if not found:
                break
            await self._archive.insert(events.name, [message_document(one) for one in found])
            at = found[-1].index + 1

    async def _check_lock(self, queue: str) -> None:
        """Raises `StoreUnavailable` if another server may be copying the queue."""
        if not await self._locks.renew(queue):
            raise StoreUnavailable(f"copying queue {queue!r} took too long: it is repeated")

    async def _copy_letters(
        self, queue: str, before: QueueState | None, letters: QueueState
    ) -> None:
        """Put new dead letters into the record, before the state that has them."""
        at = 0 if before is None else before.next
        while at < letters.next:
            found = await self._hot.read(letters.name, base.Span(start=at, limit=_CHUNK))
            found = [letter for letter in found if letter.index < letters.next]
            if not found:
                break
            await self._check_lock(queue)  # it is lost with a Redis that is wiped
            await self._archive.put_letters(letters.name, [letter_document(one) for one in found])
            at = found[-1].index + 1

    async def _remove_letters(
        self, before: QueueState | None, letters: QueueState, repeat_from: int | None
    ) -> None:
        """Remove those that were replayed or discarded or expired.

        Only after the record says so: otherwise they would be missing if Redis is lost in between.
        If this server dies in between, ``repeat_from`` makes up for it in front of the oldest.
        """
        gone = consumed(letters)
        old = Runs() if before is None else consumed(before)
        if repeat_from is not None:
            old.discard(0, gone.next_gap(0))
        await self._archive.remove(
            letters.name,
            [index_condition(run) | {"salt": letters.salt} for run in added(old, gone)],
        )

    async def sweep(self) -> None:
        """Remove what has expired, if the server does not."""
        if not await self._archive.has_ttl_indexes():
            for state in await self._archive.states():
                await self._archive.sweep(state)


def _check_has(state: QueueState, id: str) -> None:
    """Raises `IndexTaken` if the hot store had a message before it had this state, and lost it."""
    message = parse_message_id(id)
    assert message is not None
    if message.salt == state.salt and message.index >= state.next:
        raise _old_data(state, message.index)


def _old_data(state: QueueState, index: int) -> IndexTaken:
    error = IndexTaken(f"queue {state.name!r} has come back with old data")
    error.index = index
    return error


def _differs(before: QueueState, state: QueueState) -> bool:
    """Whether they differ in what is worth saving, unlike the time."""
    if (before.next, before.first, before.config) != (state.next, state.first, state.config):
        return True
    if (before.pins, before.refers) != (state.pins, state.refers):
        return True
    if before.readers != state.readers:
        return True
    old, new = before.letters, state.letters
    if old is None or new is None:
        return old is not new
    return _differs(old, new)
