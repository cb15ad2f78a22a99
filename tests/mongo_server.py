"""A server that speaks MongoDB's protocol: the one at MONGO_URL, or one of our own, for a session.

Ours is mongo-java-server, fetched by Maven and started from source: docs/decisions/0018.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from pymongo import AsyncMongoClient

__all__ = ["mongo_url", "remove_database", "start_mongo", "stop_mongo", "with_database"]

_FOLDER = Path(__file__).parent / "mongo"
_FETCH_SECONDS = 300
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
        except (OSError, ValueError, subprocess.SubprocessError) as exc:
            _failures.append(f"there is no MongoDB: set MONGO_URL, or have java and mvn ({exc})")
    if _failures:
        if os.environ.get("CI"):
            pytest.fail(_failures[0])
        pytest.skip(_failures[0])
    return _servers[0][1]


def start_mongo() -> tuple[subprocess.Popen[bytes], str]:
    """One of our own, and its URL. It ends when its input does."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise OSError(f"{program} is not installed")
    with tempfile.TemporaryDirectory() as directory:
        classes = Path(directory, "classpath")
        subprocess.run(
            [
                *("mvn", "--quiet", "--batch-mode", "--file", str(_FOLDER / "pom.xml")),
                *("dependency:build-classpath", f"-Dmdep.outputFile={classes}"),
            ],
            check=True,
            capture_output=True,
            timeout=_FETCH_SECONDS,
        )
        command = ["java", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp", classes.read_text()]
    process = subprocess.Popen(
        [*command, str(_FOLDER / "Server.java")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    port = int(process.stdout.readline())
    return process, f"mongodb://127.0.0.1:{port}"


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
