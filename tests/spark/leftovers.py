"""What a driver has left on the disk when it was killed."""

from __future__ import annotations

import json
from pathlib import Path

from penstock.pipeline.lake import Lake
from penstock.pipeline.landing import Landing, Move

__all__ = ["IDLE", "PLANNED", "expected", "is_under_way", "landing_step", "newest", "offset"]

# No batch was under way, or one of which nothing was written yet.
IDLE = "idle"
PLANNED = "planned"


def newest(checkpoint: Path, log: str) -> int:
    """The number of the last batch in Spark's log of offsets or of commits; -1 without any."""
    names = [file.name for file in (checkpoint / log).glob("*")]
    return max((int(name) for name in names if name.isdigit()), default=-1)


def is_under_way(checkpoint: Path) -> bool:
    return newest(checkpoint, "offsets") > newest(checkpoint, "commits")


def offset(checkpoint: Path, queue: str, log: str) -> int:
    """Where the last batch in that log ends."""
    number = newest(checkpoint, log)
    if number < 0:
        return 0
    *_, last = (checkpoint / "offsets" / str(number)).read_text().splitlines()
    return int(json.loads(last)[queue])


def landing_step(lake: Lake, queue: str) -> str:
    """How far the batch had come."""
    checkpoint = Path(lake.checkpoint("bronze"))
    if not is_under_way(checkpoint):
        return IDLE
    entry = Landing(lake, "bronze").last()
    if entry.progress.get(queue, 0) < offset(checkpoint, queue, "offsets"):
        return "staged" if lake.staging("bronze").files(".parquet") else PLANNED
    left = _unmoved(lake, entry.files)
    if not left:
        return "landed"
    return "entered" if len(left) == len(entry.files) else "moving"


def expected(lake: Lake, queue: str) -> list[int]:
    """The indexes that a reader has to find: all that is landed, but for files not moved yet."""
    entry = Landing(lake, "bronze").last()
    found = set(range(entry.progress.get(queue, 0)))
    for move in _unmoved(lake, entry.files):
        assert move.first is not None
        assert move.last is not None
        found -= set(range(move.first, move.last + 1))
    return sorted(found)


def _unmoved(lake: Lake, files: list[Move]) -> list[Move]:
    return [move for move in files if (lake.staging("bronze") / move.staged).exists()]
