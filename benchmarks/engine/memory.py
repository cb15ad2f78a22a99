"""Memory of this process, as the kernel sees it and as the allocator does."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path

import msgspec


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes. `rss` is what the bar judges; the others explain it."""

    rss: int
    anonymous: int
    """The part of `rss` that is not a file's pages."""
    malloc_in_use: int | None
    """What C's allocator has handed out; None where the C library cannot say."""
    rss_trimmed: int
    """`rss` after the allocator gave back the free memory that it kept."""


class _Mallinfo2(ctypes.Structure):
    # glibc's struct mallinfo2: ten size_t; we want hblkhd (mapped) and uordblks (in use).
    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    )


def measure_memory() -> Memory:
    """What this process holds now, after a full garbage collection."""
    gc.collect()
    status = _status()
    in_use = _malloc_in_use()
    _trim()
    return Memory(
        rss=status["VmRSS"],
        anonymous=status["RssAnon"],
        malloc_in_use=in_use,
        rss_trimmed=_status()["VmRSS"],
    )


def _status() -> dict[str, int]:
    wanted = ("VmRSS", "RssAnon")
    found = {}
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in wanted:
            found[name] = int(value.split()[0]) * 1024
    return found


def _malloc_in_use() -> int | None:
    mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo2 is None:
        return None
    mallinfo2.restype = _Mallinfo2
    info = mallinfo2()
    return int(info.uordblks) + int(info.hblkhd)


def _trim() -> None:
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
