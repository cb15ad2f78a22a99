"""Queues over the native API."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.v1.conftest import Api


def test_a_new_queue_is_answered_with_its_settings_and_its_default_subscription(api: Api) -> None:
    reply = api.post("/v1/queues", {"name": "made", "fifo": True, "max_messages": 5})

    assert reply.status == 201
    assert reply.json["name"] == "made"
    assert reply.json["config"]["fifo"] is True
    assert reply.json["config"]["max_messages"] == 5
    assert [one["name"] for one in reply.json["subscriptions"]] == ["default"]
    assert reply.json["created_at"].endswith("Z")
    assert api.get("/v1/queues/made").json["config"] == reply.json["config"]


def test_a_second_queue_of_the_same_name_is_a_conflict(api: Api, queue: str) -> None:
    reply = api.post("/v1/queues", {"name": queue.rpartition("/")[2]})

    assert reply.status == 409
    assert reply.json["code"] == "queue_exists"


@pytest.mark.parametrize(
    ("body", "code", "named"),
    [
        ({}, "invalid_argument", "name"),
        ({"name": 5}, "invalid_argument", "name"),
        ({"name": "no spaces"}, "invalid_name", "no spaces"),
        ({"name": "x", "colour": "red"}, "invalid_argument", "colour"),
        ({"name": "x", "fifo": "yes"}, "invalid_argument", "fifo"),
        ({"name": "x", "max_messages": 0}, "invalid_argument", "max_messages"),
        ({"name": "x", "retention_bytes": 10**19}, "invalid_argument", "retention_bytes"),
        ({"name": "x", "retention_seconds": -1}, "invalid_argument", "retention_seconds"),
        ([], "invalid_argument", "the body"),
    ],
)
def test_what_is_wrong_with_a_new_queue_is_named(
    api: Api, body: Any, code: str, named: str
) -> None:
    reply = api.post("/v1/queues", body)

    assert reply.status == 400
    assert reply.json["code"] == code
    assert named in reply.json["detail"]


def test_a_queue_is_made_by_whoever_comes_first(api: Api) -> None:
    path = "/v1/queues/ensured"

    first = api.call("PUT", path, {"max_messages": 5})
    second = api.call("PUT", path, {"max_messages": 5})
    third = api.send("PUT", path)
    other = api.call("PUT", path, {"max_messages": 6, "fifo": True})

    assert [first.status, second.status, third.status] == [201, 200, 200]
    assert [first.json["is_new"], second.json["is_new"]] == [True, False]
    assert first.json["config"]["max_messages"] == third.json["config"]["max_messages"] == 5
    assert (other.status, other.json["code"]) == (409, "queue_exists")
    assert "another fifo, max_messages" in other.json["detail"]


def test_a_queue_that_cannot_be_is_not_ensured_either(api: Api) -> None:
    assert api.call("PUT", "/v1/queues/bad.name").json["code"] == "invalid_name"
    assert api.call("PUT", "/v1/queues/orders-dlq").json["code"] == "reserved_queue"
    assert api.call("PUT", "/v1/queues/q", {"color": "red"}).status == 400


def test_altering_a_queue_leaves_alone_what_is_absent(api: Api, queue: str) -> None:
    api.call("PATCH", queue, {"max_messages": 7})

    reply = api.call("PATCH", queue, {"max_bytes": 9, "retention_seconds": None})

    assert reply.status == 200
    config = reply.json["config"]
    assert (config["max_messages"], config["max_bytes"]) == (7, 9)
    assert config["retention_seconds"] is None
    assert api.call("PATCH", queue, {"nonsense": 1}).status == 400
    assert api.call("PATCH", queue, {"max_messages": "7"}).status == 400


def test_a_deleted_queue_is_not_found(api: Api, queue: str) -> None:
    assert api.call("DELETE", queue).status == 204

    assert api.get(queue).json["code"] == "queue_not_found"
    assert api.call("DELETE", queue).status == 404


def test_a_purge_says_how_many_messages_it_removed(api: Api, queue: str) -> None:
    for _ in range(3):
        api.send("POST", f"{queue}/messages", b"x")

    reply = api.post(f"{queue}/purge")

    assert (reply.status, reply.json) == (200, {"purged": 3})
    assert api.get(f"{queue}/messages").json == {"messages": [], "next": None}


def test_queues_are_listed_page_by_page_in_the_order_of_their_names(api: Api) -> None:
    names = [f"page-{letter}" for letter in "abc"]
    for name in [*names, "another"]:
        api.post("/v1/queues", {"name": name})

    first = api.get("/v1/queues?after=page-&limit=2").json
    second = api.get(f"/v1/queues?after={first['next']}&limit=1000").json

    assert [one["name"] for one in first["queues"]] == names[:2]
    assert second["queues"][0]["name"] == names[2]
    assert second["next"] is None
    every = [one["name"] for one in api.get("/v1/stats").json["queues"]]
    assert every == sorted(every)
    assert set(names) < set(every)


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "limit=-1", "limit=%FF"])
def test_a_page_has_a_size_within_bounds(api: Api, query: str) -> None:
    reply = api.get(f"/v1/queues?{query}")

    assert reply.status == 400
    assert "limit" in reply.json["detail"]
