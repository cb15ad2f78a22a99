"""The checks of ``penstock doctor``: each takes facts, and returns a verdict with a sentence."""

from __future__ import annotations

import os
import resource
import shutil
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

import penstock
from penstock.cli.output import size
from penstock.cli.owner import owner_of

if TYPE_CHECKING:
    from penstock.client import Health

__all__ = [
    "Finding",
    "Verdict",
    "check_clock",
    "check_directory",
    "check_files",
    "check_health",
    "check_space",
    "check_version",
]

_DEFAULT_DIRECTORY = "./data"
_CLOCK_SECONDS = 5.0
# Two segments are held in advance, so below this a store turns publishes away.
_LEAST_BYTES = 256 * 1024 * 1024
_LEAST_PART = 0.05
_LEAST_FILES = 4096


class Verdict(Enum):
    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """`text` says what is all right, or what to do."""

    check: str
    verdict: Verdict
    text: str


def _good(check: str, text: str) -> Finding:
    return Finding(check=check, verdict=Verdict.GOOD, text=text)


def _warning(check: str, text: str) -> Finding:
    return Finding(check=check, verdict=Verdict.WARNING, text=text)


def _bad(check: str, text: str) -> Finding:
    return Finding(check=check, verdict=Verdict.BAD, text=text)


def check_version(health: Health) -> Finding:
    ours, theirs = penstock.__version__, health.version
    if theirs is None:
        return _warning("version", f"the server does not say its version; this is {ours}")
    if theirs != ours:
        text = f"the server is {theirs} and this is {ours}: install the same one on both sides"
        return _warning("version", text)
    return _good("version", f"both sides are {ours}")


def check_health(health: Health) -> list[Finding]:
    found = []
    # What is over Redis or MongoDB names them, and goes on when they are back.
    goes_on = len(health.components) > 1
    advice = (
        "The server goes on by itself once that is mended"
        if goes_on
        else "See the server's log, then start it again"
    )
    for name, part in health.components.items():
        if part.status == "UP":
            durability = f", durability {part.durability}" if part.durability else ""
            found.append(_good(name, f"up{durability}"))
        else:
            problem = part.problem or f"its status is {part.status}"
            found.append(_bad(name, f"{problem}. {advice}"))
    return found


def check_clock(health: Health, now: datetime) -> Finding:
    """The server's clock is known to the second, so less than that is no difference."""
    if health.date is None:
        return _warning("clock", "the server does not say the time")
    seconds = (now - health.date).total_seconds() - health.round_trip_seconds / 2
    apart = max(0.0, abs(seconds - 0.5) - 0.5)
    if apart < _CLOCK_SECONDS:
        return _good("clock", "agrees with the server's within seconds")
    which = "ahead of" if seconds > 0 else "behind"
    text = (
        f"this clock is {apart:.0f} seconds {which} the server's: times such as not_before mean "
        "something else there. Set both by NTP"
    )
    return _warning("clock", text)


def check_directory(data: str | None) -> list[Finding]:
    """The data directory of a server on this machine; the default one, if it exists."""
    if data is not None and data.startswith("memory:"):
        return [_warning("data", "all is in memory, and gone when the server ends")]
    path = Path((data or _DEFAULT_DIRECTORY).removeprefix("wal:"))
    if not path.is_dir():
        if data is None:
            return []
        text = f"there is no directory {path}: name the server's with --data"
        return [_bad("data", text)]
    owner = owner_of(path)
    user = "nobody has it open" if owner is None else f"process {owner} has it open"
    found = [_good("data", f"{path}: {user}")]
    if not os.access(path, os.W_OK | os.X_OK):
        found = [_bad("data", f"{path} cannot be written by this user: see to its permissions")]
    return [*found, check_space(path, shutil.disk_usage(path))]


def check_space(path: Path, usage: tuple[int, int, int]) -> Finding:
    """``usage`` is total, used and free bytes."""
    total, _, free = usage
    text = f"{size(free)} of {size(total)} free at {path}"
    advice = "free space, or lower retention (penstock queue alter)"
    if free < _LEAST_BYTES:
        return _bad("disk", f"{text}: {advice}, before publishes are refused with disk_full")
    if free < _LEAST_PART * total:
        return _warning("disk", f"{text}: {advice}")
    return _good("disk", text)


def check_files(data: str | None) -> Finding:
    """The limit of open files: the server's if its process is known, otherwise this one's."""
    path = Path((data or _DEFAULT_DIRECTORY).removeprefix("wal:"))
    owner = owner_of(path)
    limit = None if owner is None else _limit_of(owner)
    whose = f"of the server, process {owner}" if limit is not None else "of this shell"
    if limit is None:
        # A server that is started from here raises its own limit to this one.
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if limit == resource.RLIM_INFINITY:
        return _good("files", f"no limit of open files {whose}")
    text = f"the limit of open files {whose} is {limit}"
    if limit < _LEAST_FILES:
        return _warning("files", f"{text}, and every connection is one: raise it with ulimit -n")
    return _good("files", text)


def _limit_of(process: int) -> int | None:
    try:
        lines = Path(f"/proc/{process}/limits").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("Max open files"):
            soft = line.split()[3]
            return resource.RLIM_INFINITY if soft == "unlimited" else int(soft)
    return None
