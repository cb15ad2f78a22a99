"""The Python worker process of Spark in which tasks read and write."""

from __future__ import annotations

import gc
import sys
from functools import cache

from pyspark import TaskContext

__all__ = ["settle_in"]


def settle_in() -> None:
    """At the beginning of a task, exclude long-lived objects from garbage collection.

    A worker serves task after task, and runs a full collection after each one. With everything that
    is imported, that takes several times as long as a task with a few rows, and takes CPU time from
    the rest of the batch. Outside of a task this does nothing: the process is not ours.
    """
    if TaskContext.get() is not None:
        _freeze(len(sys.modules))


@cache
def _freeze(modules: int) -> None:
    """Once for each number of ``modules``: the first task imports more of them after its beginning.

    Objects made later are collected as usual.
    """
    gc.collect()
    gc.freeze()
