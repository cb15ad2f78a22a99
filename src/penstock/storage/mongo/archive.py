"""What is in MongoDB: a collection per queue, one for its dead letters, and one of definitions.

Queue names have no dot, so ``penstock.queues``, ``penstock.archive`` and ``penstock.documents``
(see `ArchivedShared`) cannot clash with one. The record of a queue is its documents, one per
message, and its state: see `QueueState`. Every document has the salt of its queue, which
distinguishes the queue from an earlier one of the same name.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace
from pymongo import ReplaceOne
from pymongo import errors as failures

from penstock.core.limits import DEAD_LETTER_SUFFIX
from penstock.core.message import Message, to_datetime
from penstock.errors import Conflict, StorageError, StoreUnavailable
from penstock.storage.archiving import QueueState, ReaderState
from penstock.storage.mongo.connection import Connection, Document
from penstock.storage.mongo.documents import to_message

__all__ = ["Archive", "IndexTaken"]

_QUEUES = "penstock.queues"
_IDENTITY = "penstock.archive"
_NOT_BEING_DELETED = {"deleting": {"$ne": True}}
_DUPLICATE_KEY = 11000
_CHUNK = 1000
_MICROSECONDS = 1000  # nanoseconds each


# The format of documents in `penstock.queues`; docs/mongo.md has the former ones.
_FORMAT = 2
_STATE_FIELDS = {"format": 1, "state": 1, "subscriptions": 1, "readers": 1}

_encode = msgspec.msgpack.Encoder().encode
_decode_queue = msgspec.msgpack.Decoder(QueueState).decode
_decode_reader = msgspec.msgpack.Decoder(ReaderState).decode


class IndexTaken(StorageError):
    """The record has another message at that index, so the hot store has lost its newest ones."""

    code = "storage_failed"
    index: int


class _Expiry(NamedTuple):
    """How long documents are kept after the time in `field`; None is for ever.

    `only_done`: those that are not done, see `mirror`, are kept in any case.
    """

    field: str
    seconds: float | None
    only_done: bool


class Archive:
    """All operations on the record. Each raises `StoreUnavailable` while MongoDB is away."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        # Collections that have their unique index, with the salt of the queue that they had it for,
        # since a deleted queue takes it along, and the expiry that was set.
        self._indexes: dict[str, tuple[int, _Expiry | None]] = {}
        self._has_ttl_indexes: bool | None = None

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
        with self.connection.translated_errors():
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
        await self._ensure_unique_index(queue, documents[0]["salt"])
        try:
            with self.connection.translated_errors():
                await self.connection.collection(queue).insert_many(documents, ordered=False)
        except failures.BulkWriteError as exc:
            _check_duplicates(queue, exc)

    async def put_letters(self, queue: str, documents: Sequence[Document]) -> None:
        """Insert dead letters, in index order, that no state in the record has yet.

        What is in their place was inserted for a state that did not get into the record.
        """
        await self._ensure_unique_index(queue, documents[0]["salt"])
        first, last = documents[0], documents[-1]
        others: Document = {
            "salt": first["salt"],
            "index": {"$gte": first["index"], "$lte": last["index"]},
            "_id": {"$nin": [document["_id"] for document in documents]},
        }
        await self.remove(queue, [others])
        changes = [ReplaceOne({"_id": one["_id"]}, one, upsert=True) for one in documents]
        await self.update(queue, changes)

    async def check_no_foreign_documents(self, queue: str) -> None:
        """Raises `Conflict` if the collection of a new queue has documents of somebody else."""
        with self.connection.translated_errors():
            collection = self.connection.collection(queue)
            other = await collection.find_one({"salt": {"$exists": False}}, {"_id": 1})
        if other is not None:
            raise Conflict(
                f"the collection {queue!r} holds documents of somebody else: give Penstock a "
                "database of its own, or remove them"
            )

    async def _ensure_unique_index(self, queue: str, salt: int) -> None:
        """No two messages of a queue have the same index: `insert` relies on that."""
        if self._indexes.get(queue, (None,))[0] != salt:
            with self.connection.translated_errors():
                await self.connection.collection(queue).create_index(
                    [("salt", 1), ("index", 1)], unique=True
                )
            self._indexes[queue] = (salt, None)

    async def missing(self, queue: str, ids: Iterable[str]) -> list[str]:
        """Which of these messages have no document."""
        wanted = list(ids)
        with self.connection.translated_errors():
            cursor = self.connection.collection(queue).find({"_id": {"$in": wanted}}, {"_id": 1})
            found = {document["_id"] async for document in cursor}
        return [id for id in wanted if id not in found]

    async def ids(self, queue: str, salt: int, index: int | None) -> list[str]:
        """The ids of the message with the highest index, and of the one at this index."""
        collection = self.connection.collection(queue)
        with self.connection.translated_errors():
            newest = collection.find({"salt": salt}, {"_id": 1}).sort("index", -1).limit(1)
            found = await newest.to_list()
            if index is not None:
                at = {"salt": salt, "index": index}
                found += await collection.find(at, {"_id": 1}).to_list()
        return [document["_id"] for document in found]

    async def messages(
        self, queue: str, salt: int, stop: int | None = None
    ) -> AsyncIterator[list[Message]]:
        """All messages, or those below index ``stop``, in order and in chunks."""
        at = -1
        while True:
            condition: Document = {"salt": salt, "index": {"$gt": at}}
            if stop is not None:
                condition["index"]["$lt"] = stop
            with self.connection.translated_errors():
                cursor = self.connection.collection(queue).find(condition)
                found = await cursor.sort("index", 1).limit(_CHUNK).to_list()
            if found:
                yield [to_message(queue, document) for document in found]
                at = found[-1]["index"]
            if len(found) < _CHUNK:
                return

    async def consumed(self, queue: str, salt: int, start: int, limit: int) -> list[Document]:
        """The oldest consumed messages from an index on."""
        condition = {"salt": salt, "consumed": True, "index": {"$gte": start}}
        with self.connection.translated_errors():
            cursor = self.connection.collection(queue).find(condition)
            return await cursor.sort("index", 1).limit(limit).to_list()

    async def update(self, queue: str, changes: Sequence[Any]) -> None:
        """Make many updates at once, in any order."""
        if changes:
            try:
                with self.connection.translated_errors():
                    await self.connection.collection(queue).bulk_write(changes, ordered=False)
            except failures.BulkWriteError as exc:
                for one in (exc.details or {}).get("writeErrors", []):
                    raise StorageError(f"MongoDB refused a change: {one.get('errmsg')}") from exc
                _check_confirmed(exc)

    async def remove(self, queue: str, conditions: Sequence[Document]) -> None:
        """Remove the documents that meet any of the conditions."""
        for condition in conditions:
            with self.connection.translated_errors():
                await self.connection.collection(queue).delete_many(condition)

    # Definitions and progress.

    async def states(self) -> list[QueueState]:
        """The states of all queues that are not being deleted."""
        with self.connection.translated_errors():
            cursor = self.connection.collection(_QUEUES).find(_NOT_BEING_DELETED, _STATE_FIELDS)
            return [_to_state(document) async for document in cursor.sort("_id", 1)]

    async def names(self) -> set[str]:
        """The names of all queues that are not being deleted."""
        with self.connection.translated_errors():
            cursor = self.connection.collection(_QUEUES).find(_NOT_BEING_DELETED, {"_id": 1})
            return {document["_id"] async for document in cursor}

    async def state(self, queue: str) -> QueueState | None:
        with self.connection.translated_errors():
            found = await self.connection.collection(_QUEUES).find_one(
                {"_id": queue}, _STATE_FIELDS
            )
        return None if found is None else _to_state(found)

    async def salt(self, queue: str) -> int | None:
        """The salt of the queue in the record; None if it is not there."""
        with self.connection.translated_errors():
            found = await self.connection.collection(_QUEUES).find_one({"_id": queue}, {"salt": 1})
        return None if found is None else found["salt"]

    async def saved_at(self, queue: str) -> tuple[int | None, bool]:
        """The `at` of the state in the record, and whether the queue is being deleted."""
        with self.connection.translated_errors():
            found = await self.connection.collection(_QUEUES).find_one(
                {"_id": queue}, {"at": 1, "deleting": 1}
            )
        return (None, False) if found is None else (found["at"], found.get("deleting", False))

    async def save(self, state: QueueState, before: QueueState | None) -> None:
        """Save a state, and some of it in readable form, for people: all of it, or none.

        If ``before`` is the state in the record, only the subscriptions that differ are written.
        """
        collection = self.connection.collection(_QUEUES)
        document = {
            "format": _FORMAT,
            "at": state.at,
            "salt": state.salt,
            "next": state.next,
            "config": msgspec.to_builtins(state.config),
            "subscriptions": [reader.name for reader in state.readers],
            "state": _encode(replace(state, readers=[])),
        }
        with self.connection.translated_errors():
            if before is not None:
                same = {"_id": state.name, "format": _FORMAT, "at": before.at, "salt": before.salt}
                changes = {"$set": document | _new_readers(before, state)}
                if gone := _gone_readers(before, state):
                    changes["$unset"] = gone
                done = await collection.update_one(same | _NOT_BEING_DELETED, changes)
                if done.matched_count == 1:
                    return
            document["readers"] = {reader.name: _encode(reader) for reader in state.readers}
            await collection.replace_one({"_id": state.name}, document, upsert=True)

    async def mark_deleting(self, queue: str) -> None:
        """Note that a queue is about to be deleted, so that it is not rebuilt. `save` undoes it."""
        with self.connection.translated_errors():
            await self.connection.collection(_QUEUES).update_one(
                {"_id": queue}, {"$set": {"deleting": True}}
            )

    async def names_being_deleted(self) -> list[str]:
        with self.connection.translated_errors():
            cursor = self.connection.collection(_QUEUES).find({"deleting": True}, {"_id": 1})
            return [document["_id"] async for document in cursor]

    async def forget(self, queue: str) -> None:
        """Remove the record of a deleted queue, its state last, so that a crash repeats this."""
        for name in (queue, queue + DEAD_LETTER_SUFFIX):
            with self.connection.translated_errors():
                await self.connection.collection(name).drop()
            self._indexes.pop(name, None)
        with self.connection.translated_errors():
            await self.connection.collection(_QUEUES).delete_one({"_id": queue})

    # Time.

    async def ensure_ttl_indexes(self, state: QueueState) -> None:
        """Let MongoDB remove what is beyond the queue's retention."""
        for queue, expiry in _expiries(state):
            if self._indexes.get(queue) == (state.salt, expiry):
                continue
            await self._ensure_unique_index(queue, state.salt)
            collection = self.connection.collection(queue)
            wanted = _ttl_index(expiry)
            with self.connection.translated_errors():
                for index in await (await collection.list_indexes()).to_list():
                    if wanted is not None and wanted == {name: index.get(name) for name in wanted}:
                        wanted = None  # it exists already
                    elif "expireAfterSeconds" in index:
                        await collection.drop_index(index["name"])
                if wanted is not None:
                    options = {name: value for name, value in wanted.items() if value is not None}
                    await collection.create_index(options.pop("key"), **options)
            self._indexes[queue] = (state.salt, expiry)

    async def has_ttl_indexes(self) -> bool:
        """Whether the server supports TTL indexes, as shown by its metrics of them."""
        if self._has_ttl_indexes is None:
            try:
                status = await self.connection.command("serverStatus")
            except StorageError:
                if self.problem is not None:
                    raise
                status = {}
            self._has_ttl_indexes = "ttl" in status.get("metrics", {})
        return self._has_ttl_indexes

    async def sweep(self, state: QueueState) -> None:
        """Remove what a TTL index would have removed by now, for a server that has none."""
        now = to_datetime(state.at * _MICROSECONDS)
        for queue, (field, seconds, only_done) in _expiries(state):
            if seconds is not None:
                condition: Document = {field: {"$lt": now - timedelta(seconds=seconds)}}
                if only_done:
                    condition["done"] = True
                await self.remove(queue, [condition])


def _to_state(document: Document) -> QueueState:
    """Raises `StorageError` for a document of a later version."""
    format = document.get("format", 1)
    if format > _FORMAT:
        raise StorageError(
            f"the record of queue {document['_id']!r} in MongoDB has format {format}: use the "
            "version of Penstock that has written it, or a later one"
        )
    state = _decode_queue(document["state"])
    if format == 1:
        return state
    readers = [_decode_reader(document["readers"][name]) for name in document["subscriptions"]]
    return replace(state, readers=readers)


def _new_readers(before: QueueState, state: QueueState) -> Document:
    """The subscriptions that differ."""
    old = {reader.name: reader for reader in before.readers}
    return {
        f"readers.{reader.name}": _encode(reader)
        for reader in state.readers
        if old.get(reader.name) != reader
    }


def _gone_readers(before: QueueState, state: QueueState) -> Document:
    names = {reader.name for reader in before.readers} - {reader.name for reader in state.readers}
    return {f"readers.{name}": "" for name in names}


def _ttl_index(expiry: _Expiry) -> Document | None:
    """The index as MongoDB lists it; None if nothing expires."""
    if expiry.seconds is None:
        return None
    return {
        "key": {expiry.field: 1},
        "expireAfterSeconds": min(int(expiry.seconds), 2**31 - 1),
        "partialFilterExpression": {"done": True} if expiry.only_done else None,
    }


def _expiries(state: QueueState) -> Iterable[tuple[str, _Expiry]]:
    """The expiry of each collection of a queue."""
    config = state.config
    yield state.name, _Expiry("createdAt", config.retention_seconds, config.retain_unsettled)
    if state.letters is not None:
        seconds = state.letters.config.message_ttl_seconds
        yield state.letters.name, _Expiry("failedAt", seconds, False)


def _check_duplicates(queue: str, error: failures.BulkWriteError) -> None:
    """Ignore errors for documents that exist already. Raises `IndexTaken` and `StorageError`."""
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
    _check_confirmed(error)


def _check_confirmed(error: failures.BulkWriteError) -> None:
    """Raises `StoreUnavailable` if a failover may still undo a write."""
    for one in (error.details or {}).get("writeConcernErrors", []):
        raise StoreUnavailable(
            f"MongoDB could not confirm a write ({one.get('errmsg')}): try again shortly"
        ) from error
