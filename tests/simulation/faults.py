"""What goes wrong with a disk."""

from __future__ import annotations

import errno
from random import Random

from tests.simulation.files import Fault, SimulatedFiles, crash_at, fail_with

_KINDS = ["create", "write", "sync", "allocate", "truncate", "rename", "remove", "sync_directory"]


def in_a_life(rng: Random, files: SimulatedFiles) -> Fault | None:
    """For a store that is at work: the machine stops, something fails, the disk is full, or not."""
    match rng.choice(["stop", "stop", "stop", "error", "error", "full", "fuller", "none"]):
        case "stop":
            return crash_at(files.operations + rng.randint(1, 150))
        case "error":
            kind = rng.choice(["write", "sync", *_KINDS])
            return fail_with(errno.EIO, kind=kind, from_nth=rng.randint(1, 60))
        case "full":
            return fail_with(
                errno.ENOSPC, kind="allocate", from_nth=rng.randint(1, 15), times=rng.randint(1, 9)
            )
        case "fuller":
            files.capacity_bytes = files.used_bytes + rng.randint(0, 30_000)
    return None


def at_a_start(rng: Random, files: SimulatedFiles) -> Fault | None:
    """For a store that is being opened."""
    chance = rng.random()
    if chance < 0.3:
        return crash_at(files.operations + rng.randint(1, 8))
    if chance < 0.4:
        error = rng.choice([errno.EIO, errno.ENOSPC])
        return fail_with(error, kind=rng.choice(_KINDS), from_nth=rng.randint(1, 3))
    return None


def at_a_close(rng: Random, files: SimulatedFiles) -> Fault | None:
    return crash_at(files.operations + rng.randint(1, 12)) if rng.random() < 0.5 else None
