"""A Python worker of Spark's, in which tasks read and write."""

from __future__ import annotations

import gc
from functools import cache

from pyspark import TaskContext

__all__ = ["settle_in"]


def settle_in() -> None:
    """At the beginning of a task: have the collector of cycles leave alone what is there for good.

    A worker serves task after task, and collects all garbage after each one. With what is imported
    that takes several times as long as a task with a few rows, and takes the processor from the
    rest of the batch. Outside of a task nothing is done: the process is somebody else's.
    """
    if TaskContext.get() is not None:
        _freeze()


@cache
def _freeze() -> None:
    """Once a process; what comes later is collected as ever."""
    gc.collect()
    gc.freeze()
