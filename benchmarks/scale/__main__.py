"""``python -m benchmarks.scale``."""

from __future__ import annotations

from benchmarks.scale.command import main

if __name__ == "__main__":
    raise SystemExit(main())
