"""The machine and the versions that a run's figures belong to."""

from __future__ import annotations

import os
import platform
import sqlite3
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

PACKAGES = ("penstock", "persist-queue", "litequeue", "diskcache", "huey", "uvloop")


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    cores: int
    memory_bytes: int
    kernel: str
    filesystem: str
    python: str
    sqlite: str
    packages: dict[str, str]


def describe_machine(directory: Path, packages: Sequence[str] = PACKAGES) -> Machine:
    """The machine, with the file system that `directory` is on, and versions of `packages`."""
    return Machine(
        cores=os.cpu_count() or 1,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        kernel=f"{platform.system()} {platform.release()}",
        filesystem=filesystem_of(directory),
        python=platform.python_version(),
        sqlite=sqlite3.sqlite_version,
        packages=dict(_versions(packages)),
    )


def filesystem_of(directory: Path) -> str:
    """The type of the file system that holds `directory`, such as `ext4` or `tmpfs`."""
    resolved = directory.resolve()
    holders = []
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount_point, kind, *_ = line.split(" ")
        if resolved.is_relative_to(mount_point):
            holders.append((len(mount_point), kind))
    # The root is mounted twice in many containers, and the later line is the one in force.
    return max(reversed(holders), key=lambda holder: holder[0])[1] if holders else "unknown"


def _versions(packages: Sequence[str]) -> list[tuple[str, str]]:
    found = []
    for package in packages:
        try:
            found.append((package, version(package)))
        except PackageNotFoundError:
            continue
    return found
