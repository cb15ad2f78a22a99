"""A driver in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["Driver"]

LIMIT_SECONDS = 240
_LOOK_SECONDS = 0.02


class Driver:
    """It is killed at the end of the block, if not before."""

    def __init__(
        self,
        command: dict[str, Any],
        log: Path,
        *,
        program: str = "tests.spark.driver",
        python: str = sys.executable,
    ) -> None:
        self._log = log
        self._is_killed = False
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [python, "-m", program, json.dumps(command)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        if self._is_killed:
            return
        self._is_killed = True
        # The JVM is in the group that the driver has begun, and its Python workers end without it.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate(timeout=30)

    def wait_for(self, word: str) -> str:
        """The line with which the driver has said it; fails when it ends before."""
        assert self._process.stdout is not None
        timer = threading.Timer(LIMIT_SECONDS, self._process.kill)
        timer.start()
        try:
            for line in self._process.stdout:
                if line.startswith(word):
                    return line
        finally:
            timer.cancel()
        raise AssertionError(f"the driver ended before it said {word!r}: {self._said()}")

    def go(self) -> None:
        """Let it begin, once it is ready."""
        self.wait_for("ready")
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def wait_until(self, is_so: Callable[[], bool], what: str) -> None:
        """Fails when it ends before, or takes too long."""
        until = time.monotonic() + LIMIT_SECONDS
        while not is_so():
            if self._process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"the driver did not come to {what}: {self._said()}")
            time.sleep(_LOOK_SECONDS)

    def _said(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]
