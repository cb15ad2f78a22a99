"""A MongoDB for tests: the one at MONGO_URL, or one of our own, started once a session."""

from __future__ import annotations

import os
import subprocess

import pytest
from pymongo import AsyncMongoClient

from tests.mongo.server import start_mongo

__all__ = ["mongo_url", "remove_database", "stop_mongo", "with_database"]

_servers: list[tuple[subprocess.Popen[bytes], str]] = []
_failures: list[str] = []


def mongo_url() -> str:
    """Skips the test that asks where there is none; in CI that is a failure."""
    given = os.environ.get("MONGO_URL")
    if given:
        return given.rstrip("/")
    if not _servers and not _failures:
        try:
            _servers.append(start_mongo())
        except (OSError, subprocess.SubprocessError) as exc:
            _failures.append(f"there is no MongoDB: set MONGO_URL, or have java and mvn ({exc})")
    if _failures:
        if os.environ.get("CI"):
            pytest.fail(_failures[0])
        pytest.skip(_failures[0])
    return _servers[0][1]


def stop_mongo() -> None:
    while _servers:
        process, _ = _servers.pop()
        process.communicate()  # its input ends, and so does it


def with_database(url: str, name: str) -> str:
    address, _, options = url.partition("?")
    return f"{address}/{name}{'?' + options if options else ''}"


async def remove_database(url: str, name: str) -> None:
    async with AsyncMongoClient[dict[str, object]](url) as client:
        await client.drop_database(name)
