"""huey: the storage under `SqliteHuey`, without the tasks on top."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Self


class HueyStorage:
    """`SqliteStorage` with `fsync=True`. It has no batches; a dequeue deletes at once."""

    name: ClassVar[str] = "huey"
    durability: ClassVar[str] = "everything"

    def __init__(self, storage: Any) -> None:
        self._storage = storage

    @classmethod
    def open(cls, directory: Path) -> Self:
        storage = import_module("huey.storage")
        return cls(storage.SqliteStorage("bench", str(directory / "huey.db"), fsync=True))

    def put(self, body: bytes) -> None:
        self._storage.enqueue(body)

    def put_many(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            self._storage.enqueue(body)

    def receive_and_ack(self, limit: int) -> int:
        done = 0
        while done < limit and self._storage.dequeue() is not None:
            done += 1
        return done

    def close(self) -> None:
        self._storage.close()
