"""persist-queue: its SQLite queue."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Self


class PersistQueue:
    """`SQLiteQueue` with its defaults for putting: every put is a commit with an fsync.

    It has no batch put. The consumer is a second handle with `auto_commit=False`: there, a get
    moves a cursor in memory, and `task_done` deletes everything got so far in one commit.
    """

    name: ClassVar[str] = "persist-queue"
    durability: ClassVar[str] = "everything"

    def __init__(self, producer: Any, consumer: Any, empty: type[Exception]) -> None:
        self._producer = producer
        self._consumer = consumer
        self._empty = empty

    @classmethod
    def open(cls, directory: Path) -> Self:
        persistqueue = import_module("persistqueue")
        return cls(
            persistqueue.SQLiteQueue(str(directory)),
            persistqueue.SQLiteQueue(str(directory), auto_commit=False),
            persistqueue.Empty,
        )

    def put(self, body: bytes) -> None:
        self._producer.put(body)

    def put_many(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            self._producer.put(body)

    def receive_and_ack(self, limit: int) -> int:
        done = 0
        try:
            while done < limit:
                self._consumer.get(block=False)
                done += 1
        except self._empty:
            pass
        if done:
            self._consumer.task_done()
        return done

    def close(self) -> None:
        self._producer.close()
        self._consumer.close()
