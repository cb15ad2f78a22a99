"""``/livez``, ``/readyz`` and ``/actuator/health``."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from penstock.broker import Broker
from tests.faults.files import FaultyFiles, failing
from tests.faults.store import open_store
from tests.http.client import Client
from tests.http.in_process import application


def test_a_server_that_is_well_says_so(anyone: Client) -> None:
    assert anyone.ask("GET", "/livez").json == {"status": "UP"}
    for path in ("/readyz", "/actuator/health"):
        answer = anyone.ask("GET", path)
        assert answer.status == 200
        store = {"status": "UP", "durability": "fsync"}
        assert answer.json == {"status": "UP", "components": {"store": store}}


@pytest.mark.parametrize(
    "path", ["/livez", "/readyz", "/actuator/health", "/docs", "/openapi.json"]
)
def test_what_is_open_to_everybody_can_be_asked_for_the_head_alone(
    anyone: Client, path: str
) -> None:
    whole, head = anyone.ask("GET", path), anyone.ask("HEAD", path)
    assert (head.status, head.body) == (200, b"")
    for name in ("content-type", "content-length"):
        assert head.headers[name] == whole.headers[name]


async def test_after_a_failed_write_a_server_lives_but_is_not_ready(tmp_path: Path) -> None:
    # Given a store whose disk fails
    files = FaultyFiles(tmp_path / "data")
    async with Broker(await open_store(files)) as broker, application(broker) as app:
        pushed = await app.ask("POST", "/queue/push", b"kept", consumerGroup="orders")
        assert pushed.status == 200
        files.fault = failing(errno.EIO, "write", "sync")
        refused = await app.ask("POST", "/queue/push", b"lost", consumerGroup="orders")
        assert refused.status == 503
        assert refused.headers["retry-after"] == "1"
        # Then it says so
        for path in ("/readyz", "/actuator/health"):
            health = await app.ask("GET", path)
            assert health.status == 503
            assert health.json["status"] == "DOWN"
            assert health.json["components"]["store"]["problem"]
        assert (await app.ask("GET", "/livez")).status == 200
        # And what was stored before can be read
        view = await app.ask("GET", "/queue/view", name="admin", consumerGroup="orders")
        assert [one["content"] for one in view.json] == ["kept"]
        files.fault = failing(0)
