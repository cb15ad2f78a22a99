"""The lake: a directory of tables, each a directory of parquet files that any reader understands.

::

    <lake>/
      bronze/queue=<queue>/day=<day>/<first>-<last>.parquet      messages, as they were
      events/queue=<queue>/day=<day>/<first>-<last>.parquet      what happened to them
      silver/...  rejects/...                                    bodies that parse, and the others
      gold/<table>.parquet                                       figures
      _penstock/                                                 the pipeline's own: no table
        lock
        log/<job>/<number>.json                                  what each job has landed
        staging/<job>/...                                        what a job is about to land

Every file of a table is written once, under `staging`, and then moved to its place. See `landing`
for the order of steps.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.errors import InvalidArgument
from penstock.pipeline.errors import LakeInUse

__all__ = ["Lake", "replace_file", "sync_file"]


class Lake:
    """A directory that the driver and every executor see under the same path."""

    def __init__(self, root: str | Path) -> None:
        if "://" in str(root) and not str(root).startswith("file://"):
            raise InvalidArgument(
                f"the lake is {str(root)!r}: use a directory that the driver and the executors "
                "share; object stores have no atomic rename"
            )
        self.root = Path(str(root).removeprefix("file://")).absolute()
        # Held while files get or leave their places, so that a directory can be exchanged.
        self.moving = threading.Lock()

    @property
    def own(self) -> Path:
        return self.root / "_penstock"

    @property
    def spark_log(self) -> Path:
        """What Spark and its workers have to say."""
        return self.own / "spark.log"

    def table(self, name: str) -> Path:
        return self.root / name

    def staging(self, job: str) -> Path:
        return self.own / "staging" / job

    def log(self, job: str) -> Path:
        return self.own / "log" / job

    def checkpoint(self, job: str) -> Path:
        return self.own / "checkpoint" / job

    @contextmanager
    def lock(self) -> Iterator[None]:
        """While the block runs no other process changes the lake. Raises `LakeInUse`."""
        self.own.mkdir(parents=True, exist_ok=True)
        with (self.own / "lock").open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.seek(0)
                owner = file.read().strip() or "unknown"
                raise LakeInUse(
                    f"a pipeline is at work on {self.root} (process {owner}): stop it first"
                ) from None
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield


def sync_file(path: Path) -> None:
    """Onto the disk: a file's content, or the names in a directory."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def replace_file(path: Path, data: bytes) -> None:
    """The old content or the new, whatever happens, and the new one when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_bytes(data)
    sync_file(fresh)
    fresh.replace(path)
    sync_file(path.parent)
