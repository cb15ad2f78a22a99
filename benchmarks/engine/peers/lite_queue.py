"""litequeue: pop and done on one SQLite table."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Self


class LiteQueue:
    """Puts share a transaction, and so do dones. A pop is always a transaction of its own."""

    name: ClassVar[str] = "litequeue"
    durability: ClassVar[str] = "up to the last checkpoint of SQLite's log (synchronous=NORMAL)"

    def __init__(self, queue: Any) -> None:
        self._queue = queue

    @classmethod
    def open(cls, directory: Path) -> Self:
        litequeue = import_module("litequeue")
        return cls(litequeue.LiteQueue(directory / "queue.db"))

    def put(self, body: bytes) -> None:
        self._queue.put(body)

    def put_many(self, bodies: Sequence[bytes]) -> None:
        with self._queue.transaction():
            for body in bodies:
                self._queue.put(body)

    def receive_and_ack(self, limit: int) -> int:
        taken: list[str] = []
        while len(taken) < limit and (message := self._queue.pop()) is not None:
            taken.append(message.message_id)
        if len(taken) == 1:
            self._queue.done(taken[0])
        elif taken:
            with self._queue.transaction():
                for message_id in taken:
                    self._queue.done(message_id)
        return len(taken)

    def close(self) -> None:
        self._queue.close()
