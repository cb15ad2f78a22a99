"""One run of the benchmark: what every row is given."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from benchmarks.harness.progress import Screen
from benchmarks.http.peers import Peer
from benchmarks.http.scale import Scale


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    scale: Scale
    root: Path
    """All data of a run is below it, so that everyone is on the same disk."""
    peers: tuple[type[Peer], ...]
    missing: tuple[str, ...]
    screen: Screen
    _numbers: Iterator[int] = field(default_factory=count)

    @contextmanager
    def fresh_directory(self, name: str) -> Iterator[Path]:
        """A new, empty directory, removed with all that is in it when the block ends."""
        directory = (self.root / f"{next(self._numbers):04}-{name}").resolve()
        directory.mkdir()
        try:
            yield directory
        finally:
            shutil.rmtree(directory)
