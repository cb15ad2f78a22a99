"""Dead letters over the native API."""

from __future__ import annotations

from typing import Any

from tests.http.v1.conftest import Api


def bury(api: Api, queue: str, count: int) -> list[dict[str, Any]]:
    """Publish messages and fail each of them for good."""
    api.call("PATCH", f"{queue}/subscriptions/default", {"max_deliveries": 1})
    lines = b'{"body": "x"}\n' * count
    api.send("POST", f"{queue}/messages", lines, {"Content-Type": "application/x-ndjson"})
    path = f"{queue}/subscriptions/default"
    found: list[dict[str, Any]] = api.post(f"{path}/receive", {"limit": count}).json["deliveries"]
    targets = [one["receipt"] for one in found]
    api.post(f"{path}/settle", {"nack": [{"targets": targets, "reason": "no good"}]})
    return found


def test_a_dead_letter_says_where_it_comes_from_and_why(api: Api, queue: str) -> None:
    [failed] = bury(api, queue, 1)

    page = api.get(f"{queue}/dead-letters").json

    assert page["next"] is None
    [letter] = page["messages"]
    assert letter["id"] == failed["id"]
    told = letter["dead_letter"]
    assert told.pop("failed_at").endswith("Z")
    assert told == {
        "queue": queue.rpartition("/")[2],
        "subscription": "default",
        "index": 0,
        "deliveries": 1,
        "reason": "no good",
    }


def test_pages_of_dead_letters_follow_each_other(api: Api, queue: str) -> None:
    bury(api, queue, 130)

    first = api.get(f"{queue}/dead-letters?limit=100").json
    second = api.get(f"{queue}/dead-letters?limit=30&start={first['next']}").json

    assert (len(first["messages"]), len(second["messages"])) == (100, 30)
    assert second["next"] is None
    assert api.get(f"{queue}/dead-letters?start=500").json == {"messages": [], "next": None}


def test_some_are_replayed_and_the_rest_discarded(api: Api, queue: str) -> None:
    failed = bury(api, queue, 3)

    replayed = api.post(f"{queue}/dead-letters/replay", {"ids": [failed[1]["id"], "no-id"]})
    again = api.post(f"{queue}/subscriptions/default/receive").json["deliveries"]
    discarded = api.post(f"{queue}/dead-letters/discard")

    assert replayed.json == {"replayed": 1}
    assert [one["id"] for one in again] == [failed[1]["id"]]
    assert discarded.json == {"discarded": 2}
    assert api.get(f"{queue}/dead-letters").json["messages"] == []


def test_null_replays_all(api: Api, queue: str) -> None:
    bury(api, queue, 2)

    assert api.post(f"{queue}/dead-letters/replay", {"ids": []}).json == {"replayed": 0}
    assert api.post(f"{queue}/dead-letters/replay", {"ids": None}).json == {"replayed": 2}
    assert api.post(f"{queue}/dead-letters/replay", {"ids": 5}).status == 400
    assert api.post("/v1/queues/none/dead-letters/replay").status == 404
