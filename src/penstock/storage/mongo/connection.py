"""The connection to MongoDB: translates the driver's errors, and notes when it is away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bson.codec_options import CodecOptions
from bson.errors import BSONError
from pymongo import AsyncMongoClient, WriteConcern
from pymongo import errors as failures
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.uri_parser import parse_uri

from penstock.errors import InvalidArgument, StorageError, StoreUnavailable

__all__ = ["Connection", "Document"]

DEFAULT_DATABASE = "penstock"
# A server that does not answer for this long counts as away. The url can override it.
TIMEOUT_SECONDS = 10.0
_SELECTION_SECONDS = 2.0
# Acknowledged by a majority of the replica set, and journaled there.
_DURABLE = WriteConcern("majority", j=True)

Document = dict[str, Any]


class Connection:
    """A connection pool. `problem` is why MongoDB counts as away, if it does."""

    def __init__(self, url: str) -> None:
        try:
            parsed = parse_uri(url)
            given = {name.lower() for name in parsed["options"]}
            # Not `timeoutMS`, which would also apply to looking for a server that is away.
            seconds = {
                "serverSelectionTimeoutMS": _SELECTION_SECONDS,
                "connectTimeoutMS": _SELECTION_SECONDS,
                "socketTimeoutMS": TIMEOUT_SECONDS,
            }
            options: dict[str, Any] = {
                name: round(value * 1000)
                for name, value in seconds.items()
                if name.lower() not in given
            }
            self._client: AsyncMongoClient[Document] = AsyncMongoClient(url, **options)
        except (failures.PyMongoError, ValueError) as exc:
            # Without the url: it may hold a password.
            raise InvalidArgument(f"the archive's url is not one of MongoDB: {exc}") from exc
        codec: CodecOptions[Document] = CodecOptions(tz_aware=True)
        self._database = self._client.get_database(
            parsed["database"] or DEFAULT_DATABASE, codec_options=codec, write_concern=_DURABLE
        )
        self.problem: str | None = None

    def collection(self, name: str) -> AsyncCollection[Document]:
        return self._database[name]

    @contextmanager
    def translated_errors(self) -> Iterator[None]:
        """Raise Penstock's errors instead of the driver's, and set `problem`.

        A `BulkWriteError` is left to the caller, since it depends on the documents.
        """
        try:
            yield
        except failures.BulkWriteError:
            self.problem = None
            raise
        except (failures.ConnectionFailure, failures.WTimeoutError, OSError) as exc:
            raise self._set_problem(str(exc) or "it does not answer") from exc
        except BSONError as exc:  # such as a document that is too large
            raise StorageError(f"MongoDB cannot store a document: {exc}") from exc
        except failures.PyMongoError as exc:
            if exc.timeout or exc.has_error_label("RetryableWriteError"):
                raise self._set_problem(str(exc) or "it does not answer") from exc
            raise StorageError(f"MongoDB refused a command: {exc}") from exc
        self.problem = None

    def _set_problem(self, why: str) -> StoreUnavailable:
        self.problem = f"MongoDB is away ({why[:200]}): try again shortly"
        return StoreUnavailable(self.problem)

    async def command(self, name: str) -> Document:
        with self.translated_errors():
            return await self._database.command(name)

    async def close(self) -> None:
        await self._client.close()
