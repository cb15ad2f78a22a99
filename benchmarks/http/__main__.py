"""``python -m benchmarks.http``."""

from __future__ import annotations

from benchmarks.http.command import main

if __name__ == "__main__":
    raise SystemExit(main())
