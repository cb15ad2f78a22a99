"""Looking at messages over the native API."""

from __future__ import annotations

from tests.http.v1.conftest import Api
from tests.http.v1.test_messages import publish


def test_messages_are_shown_with_how_they_stand(user: Api, queue: str) -> None:
    publish(user, queue, {"body": "acked"}, {"body": "leased"}, {"body": "ready"})
    path = f"{queue}/subscriptions/default"
    first, _ = user.post(f"{path}/receive", {"limit": 2}).json["deliveries"]
    user.post(f"{path}/settle", {"ack": [first["receipt"]]})

    every = user.get(f"{path}/messages").json["messages"]

    assert [one["body"] for one in every] == ["acked", "leased", "ready"]
    assert [one["is_settled"] for one in every] == [True, False, False]
    assert [one["deliveries"] for one in every] == [0, 1, 0]
    assert [one["leased_until"] is None for one in every] == [True, False, True]
    for query, bodies in (
        ("?settled=true", ["acked"]),
        ("?settled=false", ["leased", "ready"]),
        ("?settled=false&limit=1", ["leased"]),
        ("?start=1", ["leased", "ready"]),
        ("?start=1&limit=1", ["leased"]),
        ("?start=3", []),
    ):
        shown = user.get(f"{path}/messages{query}").json["messages"]
        assert [one["body"] for one in shown] == bodies


def test_a_view_that_is_asked_for_wrongly_is_refused(user: Api, queue: str) -> None:
    path = f"{queue}/subscriptions/default/messages"

    for query in ("?settled=yes", "?limit=0", "?limit=101", "?start=-1"):
        assert user.get(path + query).json["code"] == "invalid_argument"
    assert user.get(f"{queue}/subscriptions/none/messages").status == 404


def test_many_messages_are_found_by_id(user: Api, queue: str) -> None:
    ids = [one["id"] for one in publish(user, queue, {"body": "a"}, {"body": "b"}).json["messages"]]

    reply = user.post(f"{queue}/messages/find", {"ids": [ids[1], "no-id", ids[0]]})

    first, unknown, second = reply.json["messages"]
    assert (first["body"], unknown, second["body"]) == ("b", None, "a")
    assert user.post(f"{queue}/messages/find", {}).status == 400
    assert user.post(f"{queue}/messages/find", {"ids": ["x"] * 101}).status == 400


def test_subscriptions_come_in_pages(api: Api, queue: str) -> None:
    for name in ("c", "a", "b"):
        api.post(f"{queue}/subscriptions", {"name": name})

    page = api.get(f"{queue}/subscriptions?limit=3").json
    rest = api.get(f"{queue}/subscriptions?limit=3&after={page['next']}").json

    assert [one["name"] for one in page["subscriptions"]] == ["a", "b", "c"]
    assert [one["name"] for one in rest["subscriptions"]] == ["default"]
    assert rest["next"] is None
