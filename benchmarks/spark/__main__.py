"""``python -m benchmarks.spark``."""

from __future__ import annotations

from benchmarks.spark.command import main

if __name__ == "__main__":
    raise SystemExit(main())
