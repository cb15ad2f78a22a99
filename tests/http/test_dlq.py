"""``/queue/dlq/view`` and ``/queue/dlq/replay``."""

from __future__ import annotations

import re

import pytest

from tests.http.client import Answer, Client

MAX_DELIVERIES = 5


def fail(user: Client, group: str) -> str:
    """The id of a message that has failed as often as is allowed."""
    id = str(user.push(group).json["id"])
    for _ in range(MAX_DELIVERIES):
        assert user.pop(group).json["id"] == id
        user.nack(group, id, "broken")
    return id


def letters(admin: Client, group: str, query: str = "") -> Answer:
    return admin.ask("GET", f"/queue/dlq/view{query}", consumerGroup=group)


def replay(admin: Client, group: str, value: object) -> Answer:
    return admin.send_json("POST", "/queue/dlq/replay", value, consumerGroup=group)


def test_a_message_that_failed_too_often_becomes_a_dead_letter(
    user: Client, admin: Client, group: str
) -> None:
    id = fail(user, group)
    assert user.pop(group).status == 404
    answer = letters(admin, group)
    assert answer.status == 200
    [letter] = answer.json
    assert letter.keys() == {
        "id",
        "content",
        "priority",
        "consumerGroup",
        "createdAt",
        "deliveryCount",
        "failedAt",
        "dlqReason",
        "lastReason",
    }
    assert (letter["id"], letter["content"], letter["consumerGroup"]) == (id, "hello", group)
    assert (letter["dlqReason"], letter["lastReason"]) == ("max-deliveries", "broken")
    assert letter["deliveryCount"] == MAX_DELIVERIES
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?", letter["failedAt"])
    # The original counts as consumed.
    assert admin.view(group).json[0]["consumed"] is True


def test_a_replay_keeps_the_id_and_removes_the_letter(
    user: Client, admin: Client, group: str
) -> None:
    id = fail(user, group)
    answer = replay(admin, group, [id])
    assert (answer.status, answer.json) == (200, 1)
    assert letters(admin, group).json == []
    popped = user.pop(group).json
    assert (popped["id"], popped["content"]) == (id, "hello")
    # It has all its deliveries again.
    user.nack(group, id)
    assert user.pop(group).json["id"] == id
    assert user.ack(group, id).status == 200


def test_a_replay_counts_what_it_found(user: Client, admin: Client, group: str) -> None:
    first, second, third = (fail(user, group) for _ in range(3))
    ids = [first, third, "unknown", "01a1dedf-b9cc-7000-8000-0000f380b3bf"]
    assert replay(admin, group, ids).json == 2
    assert [letter["id"] for letter in letters(admin, group).json] == [second]


def test_an_id_that_is_named_twice_is_replayed_once(
    user: Client, admin: Client, group: str
) -> None:
    id = fail(user, group)
    assert replay(admin, group, [id, id]).json == 1


def test_nothing_is_replayed_in_a_group_without_letters(admin: Client, group: str) -> None:
    assert (replay(admin, group, ["a"]).status, replay(admin, group, ["a"]).json) == (200, 0)


@pytest.mark.parametrize("value", [[], {}, "id", None, [1], [None], [["id"]]])
def test_a_replay_needs_a_list_of_ids(admin: Client, group: str, value: object) -> None:
    assert replay(admin, group, value).status == 400


@pytest.mark.parametrize("body", [b"", b"[", b'["\xff"]', b"[" * 100_000, b'["\\ud800"]'])
def test_a_replay_of_something_that_is_no_json_is_refused(
    admin: Client, group: str, body: bytes
) -> None:
    assert admin.ask("POST", "/queue/dlq/replay", body, consumerGroup=group).status in (200, 400)


def test_the_view_is_bounded(user: Client, admin: Client, group: str) -> None:
    ids = [fail(user, group) for _ in range(3)]
    assert [one["id"] for one in letters(admin, group, "?limit=2").json] == ids[:2]
    assert [one["id"] for one in letters(admin, group).json] == ids


@pytest.mark.parametrize("limit", ["0", "-1", "x", "%20", "100000000000000000000"])
def test_any_other_limit_is_refused(admin: Client, group: str, limit: str) -> None:
    assert letters(admin, group, f"?limit={limit}").status == 400


def test_a_group_without_letters_shows_none(user: Client, admin: Client, group: str) -> None:
    assert letters(admin, group).json == []
    user.push(group)
    assert letters(admin, group).json == []
