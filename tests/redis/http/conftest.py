from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.http.conftest import admin, anyone, group, log, user
from tests.http.server import Server, running
from tests.redis_server import redis_url, unique_prefix, with_prefix

__all__ = ["admin", "anyone", "group", "log", "user"]


def start_options(directory: Path) -> tuple[str, ...]:
    """Of a server over Redis; those of one directory share their keys."""
    return ("--store", with_prefix(redis_url(), unique_prefix(directory)))


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """In the place of the one with a log; the tests cannot tell."""
    directory = tmp_path_factory.mktemp("redis")
    data, log = str(directory / "data"), directory / "log"
    with running(data, log, *start_options(directory)) as server:
        yield server
