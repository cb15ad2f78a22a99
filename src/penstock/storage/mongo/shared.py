"""`Shared` with an archive: documents are only in the record, news and counts in the hot store.

So no document is lost if the hot store loses everything.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence

from pymongo.errors import DuplicateKeyError

from penstock.errors import StorageError, StoreUnavailable
from penstock.storage.archiving import HotShared
from penstock.storage.mongo.connection import Connection
from penstock.storage.mongo.connection import Document as Fields
from penstock.storage.shared import Document, Limit

__all__ = ["ArchivedShared"]

logger = logging.getLogger(__name__)

_COLLECTION = "penstock.documents"


class ArchivedShared:
    """See `Shared`."""

    def __init__(self, hot: HotShared, connection: Connection) -> None:
        self._hot = hot
        self._connection = connection

    def place(self, name: str) -> str:
        return f"{name} of {_COLLECTION} in MongoDB"

    async def get(self, name: str, known: str | None = None) -> Document | None:
        self._check_there()
        found = await self._find(name, {"version": True})
        if found is None:
            before = await self._hot.get(name)
            if before is not None and before.version:  # from before there was an archive
                await self._replace(name, before, "")
        elif found["version"] == known:
            return None
        found = await self._find(name)
        document = Document(found["content"], found["version"]) if found else Document(b"", "")
        return None if document.version == known else document

    async def _find(self, name: str, fields: dict[str, bool] | None = None) -> Fields | None:
        with self._connection.translated_errors():
            return await self._connection.collection(_COLLECTION).find_one({"_id": name}, fields)

    async def put(self, name: str, content: bytes, version: str) -> str | None:
        self._check_there()
        document = Document(content, secrets.token_hex(8))
        if not await self._replace(name, document, version):
            return None
        try:
            await self._hot.announce(name)
        except StorageError as exc:
            logger.warning("other servers learn later that %s has changed: %s", name, exc)
        return document.version

    async def _replace(self, name: str, document: Document, version: str) -> bool:
        """Replace a document. False if it does not have this version."""
        collection = self._connection.collection(_COLLECTION)
        with self._connection.translated_errors():
            if version:
                done = await collection.update_one(
                    {"_id": name, "version": version}, {"$set": document._asdict()}
                )
                return done.matched_count == 1
            try:
                await collection.insert_one({"_id": name, **document._asdict()})
            except DuplicateKeyError:
                return False
        return True

    def _check_there(self) -> None:
        """Raises `StoreUnavailable` at once if MongoDB is known to be away, instead of waiting."""
        if self._connection.problem is not None:
            raise StoreUnavailable(self._connection.problem)

    def follow(self, name: str, look: Callable[[], Awaitable[None]]) -> None:
        self._hot.follow(name, look)

    async def over_limit(self, limits: Sequence[Limit]) -> Limit | None:
        return await self._hot.over_limit(limits)
