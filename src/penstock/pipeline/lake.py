"""The lake: a directory of tables, each a directory of parquet files that any reader understands.

::

    <lake>/
      bronze/queue=<queue>/day=<day>/<first>-<last>.parquet      messages, as they were
      events/queue=<queue>/day=<day>/<first>-<last>.parquet      what happened to them
      silver/...  rejects/...                                    bodies that parse, and the others
      gold/<table>/day=<day>/figures.parquet                     figures
      compacted/<table>/...                                      days that are over; see `days`
      _penstock/                                                 the pipeline's own: no table
        lock
        format                                                   of the tables, if not parquet
        log/<job>/<number>.json                                  how far each job has come
        state/<state>/day=<day>/<number>.parquet                 what gold is made from
        staging/<job>/...                                        what a job is about to land

Every file of a table is written once, under `staging`, and then moved to its place. See `landing`
for the order of steps, and `place` for what a disk and an object store have in common.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.errors import InvalidArgument
from penstock.pipeline.errors import LakeInUse
from penstock.pipeline.place import Place, place_of

__all__ = ["DELTA", "FORMATS", "ICEBERG", "PARQUET", "Lake"]

PARQUET = "parquet"
DELTA = "delta"
ICEBERG = "iceberg"
FORMATS = (PARQUET, DELTA, ICEBERG)

_OWN = "_penstock"
_PARTS = ("bronze", "events", "silver", "rejects", "gold", "compacted", "report.html", _OWN)
_TYPED = "typed-"
_PATTERNS = frozenset("*?[]{}\\")


class Lake:
    """A directory that the driver and every executor see under the same path, or ``s3://…``."""

    def __init__(self, root: str | Path | Place) -> None:
        self.root = place_of(root)
        if found := _PATTERNS.intersection(self.root.path):
            raise InvalidArgument(
                f"{str(self.root)!r} cannot be a lake, because Spark takes {min(found)!r} in the "
                "path of a file for a pattern: use another name"
            )
        self._format: str | None = None
        # Held while files are moved, so that compaction can exchange a directory.
        self.moving = threading.Lock()
        # By job, the number of the newest entry whose files are in their tables.
        self.finished: dict[str, int] = {}

    @property
    def format(self) -> str:
        """The format of its tables, fixed from the first row on."""
        if self._format is None:
            file = self.own / "format"
            self._format = file.read().decode() if file.exists() else PARQUET
        return self._format

    def choose_format(self, wanted: str | None) -> None:
        """Set the format of a new lake. Raises `InvalidArgument` if it already has another."""
        if wanted is None:
            return
        if wanted not in FORMATS:
            raise InvalidArgument(f"the format is {wanted!r}: use {' or '.join(FORMATS)}")
        if wanted == ICEBERG and not self.root.is_local:
            raise InvalidArgument(
                "a lake in Iceberg is a directory: without a service of its own Iceberg needs a "
                "place where a file can be renamed in one step. Use delta or parquet on S3"
            )
        if wanted != self.format and self.log("bronze").exists():
            raise InvalidArgument(
                f"the tables of {self.root} are {self.format} and cannot become {wanted}: use "
                "another lake"
            )
        self._format = wanted

    def keep_format(self) -> None:
        """Store the format, before anything is landed."""
        file = self.own / "format"
        if self.format != (file.read().decode() if file.exists() else PARQUET):
            file.replace(self.format.encode())

    @property
    def own(self) -> Place:
        return self.root / _OWN

    @property
    def spark_log(self) -> Path:
        """The log file of Spark and its workers, on a local disk."""
        if self.root.is_local:
            return Path(self.own) / "spark.log"
        return Path(tempfile.gettempdir()) / "penstock-spark.log"

    def remove(self) -> None:
        """Remove what a pipeline has written. Other files in the same directory stay.

        The log goes last: what is left of a removal that was interrupted is still a lake.
        """
        for each in sorted(self.root.children(), key=lambda each: each.name == _OWN):
            if each.name in _PARTS or each.name.startswith(_TYPED):
                each.remove()

    def table(self, name: str) -> Place:
        return self.root / name

    def staging(self, job: str) -> Place:
        return self.own / "staging" / job

    def log(self, job: str) -> Place:
        return self.own / "log" / job

    def checkpoint(self, job: str) -> Place:
        return self.own / "checkpoint" / job

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from changing the lake while the block runs. Raises `LakeInUse`.

        In an object store, a lock would outlive a process that is killed. There, two may start, but
        only one of them can write the next entry of a log, and the other fails (`Landing.land`).
        """
        if not self.root.is_local:
            self._check_conditions()
            yield
            return
        path = Path(self.own) / "lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+") as file:
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

    def _check_conditions(self) -> None:
        """Refuse a store that ignores If-None-Match: it could not keep two pipelines apart."""
        lock = self.own / "lock"
        lock.create(uuid.uuid4().bytes)
        if lock.create(uuid.uuid4().bytes):
            raise InvalidArgument(
                f"the object store of {self.root} overwrites a file in spite of If-None-Match: * "
                "and so cannot keep two pipelines apart: use one that does not"
            )
