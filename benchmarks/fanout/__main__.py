"""``python -m benchmarks.fanout``."""

from __future__ import annotations

from benchmarks.fanout.command import main

if __name__ == "__main__":
    raise SystemExit(main())
