"""What is in MongoDB: a collection per queue, one for its dead letters, and one of definitions.

Queue names have no dot, so ``penstock.queues``, ``penstock.archive`` and ``penstock.documents``
(see `ArchivedShared`) cannot clash with one. The record of a queue is its documents, one per
message, and its state: see `QueueState`. Every document has the salt of its queue, which
distinguishes the queue from an earlier one of the same name.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import timedelta
from typing import Any

import msgspec
from pymongo import errors as failures

from penstock.core.limits import DEAD_LETTER_SUFFIX
from penstock.core.message import Message, to_datetime
from penstock.errors import Conflict, StorageError
from penstock.storage.archiving import QueueState
from penstock.storage.mongo.connection import Connection, Document
from penstock.storage.mongo.documents import to_message

__all__ = ["Archive", "IndexTaken"]

_QUEUES = "penstock.queues"
_IDENTITY = "penstock.archive"
_KEPT = {"deleting": {"$ne": True}}
_DUPLICATE_KEY = 11000
_CHUNK = 1000
_MICROSECONDS = 1000  # nanoseconds each

# The time field, after how many seconds it expires, and whether only for documents that are done.
Rule = tuple[str, float | None, bool]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(QueueState).decode


class IndexTaken(StorageError):
    """The record has another message at that index, so the hot store has lost its newest ones."""

    code = "storage_failed"
    index: int


class Archive:
    """All operations on the record. Each raises `StoreUnavailable` while MongoDB is away."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._has_indexes: dict[str, object] = {}
        self._expires_by_itself: bool | None = None

    @property
    def problem(self) -> str | None:
        return self.connection.problem

    async def ping(self) -> None:
        await self.connection.command("ping")

    async def close(self) -> None:
        await self.connection.close()

    async def identity(self, proposed: str) -> str:
        """The identity of this archive: the one that was proposed first."""
        collection = self.connection.collection(_IDENTITY)
        with self.connection.asking():
            try:
                await collection.insert_one({"_id": "identity", "value": proposed})
            except failures.DuplicateKeyError:
                found = await collection.find_one({"_id": "identity"})
                assert found is not None
                return str(found["value"])
        return proposed

    # Messages.

    async def insert(self, queue: str, documents: Sequence[Document]) -> None:
        """Insert documents. Those that exist stay as they are. Raises `IndexTaken`."""
        if not documents:
            return
        await self._make_indexes(queue)
        try:
            with self.connection.asking():
                await self.connection.collection(queue).insert_many(documents, ordered=False)
        except failures.BulkWriteError as exc:
            _check_duplicates(queue, exc)

    async def check_own(self, queue: str) -> None:
        """Raises `Conflict` if the collection of a new queue has documents of somebody else."""
        with self.connection.asking():
            collection = self.connection.collection(queue)
            other = await collection.find_one({"salt": {"$exists": False}}, {"_id": 1})
        if other is not None:
            raise Conflict(
                f"the collection {queue!r} holds documents of somebody else: give Penstock a "
                "database of its own, or remove them"
            )

    async def _make_indexes(self, queue: str) -> None:
        if queue not in self._has_indexes:
            with self.connection.asking():
                await self.connection.collection(queue).create_index(
                    [("salt", 1), ("index", 1)], unique=True
                )
            self._has_indexes[queue] = None

    async def missing(self, queue: str, ids: Iterable[str]) -> list[str]:
        """Which of these messages have no document."""
        wanted = list(ids)
        with self.connection.asking():
            cursor = self.connection.collection(queue).find({"_id": {"$in": wanted}}, {"_id": 1})
            found = {document["_id"] async for document in cursor}
        return [id for id in wanted if id not in found]

    async def ids(self, queue: str, salt: int, index: int | None) -> list[str]:
        """The ids of the message with the highest index, and of the one at this index."""
        collection = self.connection.collection(queue)
        with self.connection.asking():
            newest = collection.find({"salt": salt}, {"_id": 1}).sort("index", -1).limit(1)
            found = await newest.to_list()
            if index is not None:
                at = {"salt": salt, "index": index}
                found += await collection.find(at, {"_id": 1}).to_list()
        return [document["_id"] for document in found]

    async def messages(
        self, queue: str, salt: int, stop: int | None = None
    ) -> AsyncIterator[list[Message]]:
        """All messages below an index, in order, in parts."""
        at = -1
        while True:
            condition: Document = {"salt": salt, "index": {"$gt": at}}
            if stop is not None:
                condition["index"]["$lt"] = stop
            with self.connection.asking():
                cursor = self.connection.collection(queue).find(condition)
                found = await cursor.sort("index", 1).limit(_CHUNK).to_list()
            if found:
                yield [to_message(queue, document) for document in found]
                at = found[-1]["index"]
            if len(found) < _CHUNK:
                return

    async def consumed(self, queue: str, salt: int, limit: int) -> list[Document]:
        """The oldest consumed messages."""
        condition = {"salt": salt, "consumed": True}
        with self.connection.asking():
            cursor = self.connection.collection(queue).find(condition)
            return await cursor.sort("index", 1).limit(limit).to_list()

    async def update(self, queue: str, changes: Sequence[Any]) -> None:
        """Many updates at once."""
        if changes:
            with self.connection.asking():
                await self.connection.collection(queue).bulk_write(changes, ordered=False)

    async def remove(self, queue: str, conditions: Sequence[Document]) -> None:
        for condition in conditions:
            with self.connection.asking():
                await self.connection.collection(queue).delete_many(condition)

    # Definitions and progress.

    async def states(self) -> list[QueueState]:
        with self.connection.asking():
            cursor = self.connection.collection(_QUEUES).find(_KEPT, {"state": 1})
            return [_decode(document["state"]) async for document in cursor.sort("_id", 1)]

    async def names(self) -> set[str]:
        """The names of all queues that are not being deleted."""
        with self.connection.asking():
            cursor = self.connection.collection(_QUEUES).find(_KEPT, {"_id": 1})
            return {document["_id"] async for document in cursor}

    async def state(self, queue: str) -> QueueState | None:
        with self.connection.asking():
            found = await self.connection.collection(_QUEUES).find_one({"_id": queue})
        return None if found is None else _decode(found["state"])

    async def salt(self, queue: str) -> int | None:
        """The salt of the queue in the record; None if it has none."""
        with self.connection.asking():
            found = await self.connection.collection(_QUEUES).find_one({"_id": queue}, {"salt": 1})
        return None if found is None else found["salt"]

    async def saved_at(self, queue: str) -> tuple[int | None, bool]:
        """The `at` of the state in the record, and whether the queue is being deleted."""
        with self.connection.asking():
            found = await self.connection.collection(_QUEUES).find_one(
                {"_id": queue}, {"at": 1, "deleting": 1}
            )
        return (None, False) if found is None else (found["at"], found.get("deleting", False))

    async def save(self, state: QueueState) -> None:
        """Save the state: some fields in readable form, and all that is needed to rebuild it."""
        document = {
            "_id": state.name,
            "at": state.at,
            "salt": state.salt,
            "next": state.next,
            "config": msgspec.to_builtins(state.config),
            "subscriptions": [reader.name for reader in state.readers],
            "state": _encode(state),
        }
        with self.connection.asking():
            await self.connection.collection(_QUEUES).replace_one(
                {"_id": state.name}, document, upsert=True
            )

    async def condemn(self, queue: str) -> None:
        """Mark a queue that is about to be deleted, so that it is not rebuilt. Undone by `save`."""
        with self.connection.asking():
            await self.connection.collection(_QUEUES).update_one(
                {"_id": queue}, {"$set": {"deleting": True}}
            )

    async def condemned(self) -> list[str]:
        with self.connection.asking():
            cursor = self.connection.collection(_QUEUES).find({"deleting": True}, {"_id": 1})
            return [document["_id"] async for document in cursor]

    async def forget(self, queue: str) -> None:
        """Remove a deleted queue. Its definition goes last, so that a crash repeats this."""
        for name in (queue, queue + DEAD_LETTER_SUFFIX):
            with self.connection.asking():
                await self.connection.collection(name).drop()
            self._has_indexes.pop(name, None)
        with self.connection.asking():
            await self.connection.collection(_QUEUES).delete_one({"_id": queue})

    # Time.

    async def limit_age(self, state: QueueState) -> None:
        """Let MongoDB remove what is beyond the queue's retention."""
        for queue, rule in _rules(state):
            if self._has_indexes.get(queue) == rule:
                continue
            await self._make_indexes(queue)
            collection = self.connection.collection(queue)
            wanted = _ttl_index(rule)
            with self.connection.asking():
                for index in await (await collection.list_indexes()).to_list():
                    if wanted is not None and wanted == {name: index.get(name) for name in wanted}:
                        wanted = None  # it exists already
                    elif "expireAfterSeconds" in index:
                        await collection.drop_index(index["name"])
                if wanted is not None:
                    options = {name: value for name, value in wanted.items() if value is not None}
                    await collection.create_index(options.pop("key"), **options)
            self._has_indexes[queue] = rule

    async def expires_by_itself(self) -> bool:
        """Whether the server has TTL indexes. One that reports no metrics for them has none."""
        if self._expires_by_itself is None:
            try:
                status = await self.connection.command("serverStatus")
            except StorageError:
                if self.problem is not None:
                    raise
                status = {}
            self._expires_by_itself = "ttl" in status.get("metrics", {})
        return self._expires_by_itself

    async def sweep(self, state: QueueState) -> None:
        """Remove what a TTL index would have removed by now, for a server that has none."""
        now = to_datetime(state.at * _MICROSECONDS)
        for queue, (field, seconds, done) in _rules(state):
            if seconds is not None:
                condition: Document = {field: {"$lt": now - timedelta(seconds=seconds)}}
                if done:
                    condition["done"] = True
                await self.remove(queue, [condition])


def _ttl_index(rule: Rule) -> Document | None:
    """The index as MongoDB lists it; None if nothing expires."""
    field, seconds, done = rule
    if seconds is None:
        return None
    return {
        "key": {field: 1},
        "expireAfterSeconds": min(int(seconds), 2**31 - 1),
        "partialFilterExpression": {"done": True} if done else None,
    }


def _rules(state: QueueState) -> Iterable[tuple[str, Rule]]:
    """The rule of each collection.

    Unsettled messages stay for as long as the queue keeps them.
    """
    config = state.config
    yield state.name, ("createdAt", config.retention_seconds, config.retain_unsettled)
    if state.letters is not None:
        yield state.letters.name, ("failedAt", state.letters.config.message_ttl_seconds, False)


def _check_duplicates(queue: str, error: failures.BulkWriteError) -> None:
    """Ignore documents that were written before; raise if another one has their place."""
    for one in (error.details or {}).get("writeErrors", []):
        if one.get("code") != _DUPLICATE_KEY:
            raise StorageError(f"MongoDB refused a document: {one.get('errmsg')}") from error
        pattern = one.get("keyPattern")
        is_same = "_id" in pattern if pattern else "index: _id_ " in one.get("errmsg", "")
        if not is_same:
            index = one["op"]["index"]
            taken = IndexTaken(f"the archive holds another message {index} of queue {queue!r}")
            taken.index = index
            raise taken from error
    if (error.details or {}).get("writeConcernErrors"):
        raise StorageError("MongoDB could not confirm a write") from error
