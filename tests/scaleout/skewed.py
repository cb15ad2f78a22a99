"""``python -m tests.scaleout.skewed SECONDS serve …``: a server whose clock is ahead, or behind."""

from __future__ import annotations

import sys
import time

if __name__ == "__main__":
    ahead_seconds = int(sys.argv.pop(1))
    right, right_ns = time.time, time.time_ns
    time.time = lambda: right() + ahead_seconds
    time.time_ns = lambda: right_ns() + ahead_seconds * 1_000_000_000

    # Only now: some take the clock as they are imported.
    from penstock.cli import main

    main()
