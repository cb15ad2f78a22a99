"""The process that forks Spark's Python workers, for a session on one machine.

Spark puts a zip file with the sources of PySpark first on the path, and each worker compiles what
it imports from there, which takes about a second of CPU time. Here PySpark comes from where it is
installed, already compiled, and is imported once, before the workers are forked.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module

__all__ = ["main"]


def main() -> None:
    """Spark names the module of the worker, if it is not the usual one."""
    sys.path[:] = [path for path in sys.path if not path.endswith(("pyspark.zip", "-src.zip"))]
    import_module(sys.argv[1] if len(sys.argv) > 1 else "pyspark.worker")
    daemon = import_module("pyspark.daemon")
    gc.freeze()  # a worker looks through all that can be garbage after each task
    daemon.manager()


if __name__ == "__main__":
    main()
