"""Subscriptions over the native API: definitions, positions, dependencies."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.v1.conftest import Api


def fill(api: Api, queue: str, count: int) -> None:
    for number in range(count):
        assert api.send("POST", f"{queue}/messages", str(number).encode()).status == 201


def indexes(api: Api, queue: str, name: str) -> list[int]:
    reply = api.post(f"{queue}/subscriptions/{name}/receive", {"limit": 100})
    return [one["index"] for one in reply.json["deliveries"]]


def test_a_new_subscription_is_answered_as_it_is(api: Api, queue: str) -> None:
    reply = api.post(
        f"{queue}/subscriptions",
        {
            "name": "s",
            "start": "earliest",
            "filter": "priority > 3",
            "backoff": {"kind": "exponential", "base_seconds": 1},
            "max_deliveries": None,
        },
    )

    assert reply.status == 201
    assert reply.json["config"]["filter"] == "priority > 3"
    assert reply.json["config"]["backoff"]["kind"] == "exponential"
    assert reply.json["config"]["max_deliveries"] is None
    assert api.get(f"{queue}/subscriptions/s").json["name"] == "s"
    every = api.get(f"{queue}/subscriptions").json["subscriptions"]
    assert [one["name"] for one in every] == ["default", "s"]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("earliest", [0, 1, 2]),
        ("latest", []),
        (1, [1, 2]),
        ("2020-01-01T00:00:00Z", [0, 1, 2]),
        ("2100-01-01T00:00:00+02:00", []),
    ],
)
def test_a_subscription_starts_and_seeks_where_it_is_told(
    api: Api, queue: str, start: Any, expected: list[int]
) -> None:
    fill(api, queue, 3)
    api.post(f"{queue}/subscriptions", {"name": "s", "start": start})
    assert indexes(api, queue, "s") == expected

    assert api.post(f"{queue}/subscriptions/default/seek", {"start": start}).status == 204

    assert indexes(api, queue, "default") == expected


@pytest.mark.parametrize(
    ("body", "code", "named"),
    [
        ({}, "invalid_argument", "name"),
        ({"name": "s", "start": "soon"}, "invalid_argument", "start"),
        ({"name": "s", "start": -1}, "invalid_argument", "start"),
        ({"name": "s", "start": 2**70}, "invalid_argument", "start"),
        ({"name": "s", "start": "2030-01-01T00:00:00"}, "invalid_argument", "start"),
        ({"name": "s", "start": "0001-01-01T00:00:00Z"}, "invalid_argument", "time"),
        ({"name": "s", "filter": "priority >"}, "invalid_filter", "filter"),
        ({"name": "s", "after": ["none"]}, "invalid_dependency", "none"),
        ({"name": "s", "after": "default"}, "invalid_argument", "after"),
        ({"name": "s", "on_dead_parent": "panic"}, "invalid_argument", "on_dead_parent"),
        ({"name": "s", "lease_seconds": -1}, "invalid_argument", "lease_seconds"),
        ({"name": "s", "backoff": {"jitter": 2}}, "invalid_argument", "jitter"),
        ({"name": "s", "colour": 1}, "invalid_argument", "colour"),
    ],
)
def test_what_is_wrong_with_a_new_subscription_is_named(
    api: Api, queue: str, body: Any, code: str, named: str
) -> None:
    reply = api.post(f"{queue}/subscriptions", body)

    assert (reply.status, reply.json["code"]) == (400, code)
    assert named in reply.json["detail"]


def test_a_second_subscription_of_the_same_name_is_a_conflict(api: Api, queue: str) -> None:
    reply = api.post(f"{queue}/subscriptions", {"name": "default"})

    assert (reply.status, reply.json["code"]) == (409, "subscription_exists")


def test_altering_a_subscription_leaves_alone_what_is_absent(api: Api, queue: str) -> None:
    path = f"{queue}/subscriptions/default"
    api.call("PATCH", path, {"max_in_flight": 3})

    reply = api.call("PATCH", path, {"lease_seconds": None})

    assert reply.status == 200
    assert reply.json["config"]["max_in_flight"] == 3
    assert reply.json["config"]["lease_seconds"] is None
    assert api.call("PATCH", path, {"start": "latest"}).status == 400


def test_a_paused_subscription_delivers_nothing_until_it_is_resumed(api: Api, queue: str) -> None:
    fill(api, queue, 1)

    assert api.post(f"{queue}/subscriptions/default/pause").status == 204
    assert indexes(api, queue, "default") == []
    assert api.post(f"{queue}/subscriptions/default/resume").status == 204
    assert indexes(api, queue, "default") == [0]


def test_a_deleted_subscription_is_not_found(api: Api, queue: str) -> None:
    assert api.call("DELETE", f"{queue}/subscriptions/default").status == 204

    reply = api.get(f"{queue}/subscriptions/default")
    assert (reply.status, reply.json["code"]) == (404, "subscription_not_found")
    assert indexes_status(api, queue) == 404


def indexes_status(api: Api, queue: str) -> int:
    return api.post(f"{queue}/subscriptions/default/receive").status


def test_held_messages_are_listed_and_can_be_released(api: Api, queue: str) -> None:
    api.post(f"{queue}/subscriptions", {"name": "child", "after": ["default"]})
    fill(api, queue, 3)
    path = f"{queue}/subscriptions/child"

    assert api.get(f"{path}/held?limit=2").json["indexes"] == [0, 1]
    assert indexes(api, queue, "child") == []
    assert api.post(f"{path}/release", {"indexes": [1]}).status == 204
    assert indexes(api, queue, "child") == [1]
    assert api.post(f"{path}/release", {"indexes": [1]}).json["code"] == "not_held"
    assert api.post(f"{path}/release", {"indexes": [9]}).json["code"] == "message_not_found"


def test_a_subscription_is_made_if_it_is_not_there(api: Api, queue: str) -> None:
    fill(api, queue, 3)
    path = f"{queue}/subscriptions/s"

    first = api.call("PUT", path, {"start": 1, "lease_seconds": 5})
    fill(api, queue, 1)
    second = api.call("PUT", path, {"start": "latest", "lease_seconds": 5})

    assert (first.status, second.status) == (201, 200)
    assert (first.json["is_new"], second.json["is_new"]) == (True, False)
    assert "secret" not in first.json
    assert second.json["name"] == "s"
    assert second.json["config"]["lease_seconds"] == 5
    assert indexes(api, queue, "s") == [1, 2, 3]


def test_one_that_is_there_with_other_settings_is_refused(api: Api, queue: str) -> None:
    path = f"{queue}/subscriptions/s"
    api.call("PUT", path, {"filter": "priority > 3"})

    reply = api.call("PUT", path, {"filter": "priority > 4", "max_in_flight": 7})

    assert (reply.status, reply.json["code"]) == (409, "subscription_exists")
    assert "filter, max_in_flight" in reply.json["detail"]
    assert api.send("PUT", f"{queue}/subscriptions/default").status == 200
    assert api.call("PUT", path, {"name": "s"}).status == 400
    assert api.call("PUT", f"{queue}/subscriptions/bad.name").json["code"] == "invalid_name"


def test_held_messages_say_what_they_wait_for(api: Api, queue: str) -> None:
    for name, after in (("a", []), ("b", ["a", "default"])):
        api.post(f"{queue}/subscriptions", {"name": name, "after": after})
    fill(api, queue, 1)

    held = api.get(f"{queue}/subscriptions/b/held").json
    assert held == {"indexes": [0], "messages": [{"index": 0, "waits_for": ["a", "default"]}]}


def test_the_graph_shows_who_waits_for_whom(api: Api, user: Api, queue: str) -> None:
    api.post(f"{queue}/subscriptions", {"name": "late", "after": ["default"]})

    graph = user.get(f"{queue}/graph").json
    assert [one["name"] for one in graph["subscriptions"]] == ["default", "late"]
    assert graph["dependencies"] == [
        {"before": "default", "after": "late", "on_dead_parent": "hold"}
    ]


def test_a_filter_is_tried_before_anybody_subscribes_with_it(
    api: Api, user: Api, queue: str
) -> None:
    fill(api, queue, 5)

    found = user.post(f"{queue}/filter:test", {"filter": "body >= 3", "last": 3})
    assert (found.status, found.json) == (200, {"tested": 3, "matched": [3, 4], "failed": []})
    wrong = user.post(f"{queue}/filter:test", {"filter": "body >="})
    assert (wrong.status, wrong.json["code"]) == (400, "invalid_filter")
    assert user.post(f"{queue}/filter:test", {"filter": "true", "last": 1001}).status == 400
