"""Steps at which a process can be held, to be killed there and nowhere else.

Whoever comes to a step that is armed stays there. As a step is armed by a file, it does not matter
which process comes to it: a driver, or a worker of Spark's.
"""

from __future__ import annotations

import threading
from pathlib import Path

__all__ = ["Holds"]

# A worker may outlive its driver, but not for good.
_LONGEST_SECONDS = 600


class Holds:
    def __init__(self, directory: str | Path) -> None:
        self._directory = Path(directory)

    def arm(self, step: str) -> None:
        """The next one that comes to it is held, and only that one."""
        self._directory.mkdir(exist_ok=True)
        (self._directory / step).touch()

    def is_reached(self, step: str) -> bool:
        return (self._directory / f"{step}-reached").exists()

    def disarm(self) -> None:
        """Every step, for the next process."""
        for file in self._directory.glob("*"):
            file.unlink()

    def at(self, step: str) -> None:
        try:
            (self._directory / step).rename(self._directory / f"{step}-reached")
        except FileNotFoundError:
            return
        threading.Event().wait(_LONGEST_SECONDS)
