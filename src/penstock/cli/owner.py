"""Which process has a data directory open."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["owner_of"]

_LOCK_NAME = "LOCK"


def owner_of(directory: Path) -> int | None:
    """The process id in the lock file; None when that process is gone."""
    try:
        owner = int((directory / _LOCK_NAME).read_text())
    except (OSError, ValueError):
        return None
    try:
        os.kill(owner, 0)
    except PermissionError:
        return owner  # of another user
    except OSError:
        return None
    return owner
