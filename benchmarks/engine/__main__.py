"""``python -m benchmarks.engine``."""

from __future__ import annotations

from benchmarks.engine.command import main

if __name__ == "__main__":
    raise SystemExit(main())
