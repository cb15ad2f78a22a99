"""``/queue/batch/*``."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from penstock.clock import SystemClock
from penstock.core.message import to_datetime
from tests.http.client import Answer, Client


def push(user: Client, group: str, contents: object, **headers: str) -> Answer:
    return user.send_json("POST", "/queue/batch/push", contents, consumerGroup=group, **headers)


def pop(user: Client, group: str, query: str = "") -> Answer:
    return user.ask("GET", f"/queue/batch/pop{query}", consumerGroup=group)


def ack(user: Client, group: str, ids: object) -> Answer:
    return user.send_json("POST", "/queue/batch/ack", ids, consumerGroup=group)


def test_a_batch_is_pushed_popped_and_acked(user: Client, group: str) -> None:
    pushed = push(user, group, ["a", "b", "c"])
    assert pushed.status == 200
    assert [one["content"] for one in pushed.json] == ["a", "b", "c"]
    popped = pop(user, group)
    assert (popped.status, popped.json) == (200, pushed.json)
    answer = ack(user, group, [one["id"] for one in popped.json])
    assert (answer.status, answer.json) == (200, 3)
    assert pop(user, group).json == []


def test_an_empty_batch_is_refused(user: Client, group: str) -> None:
    assert push(user, group, []).status == 400


@pytest.mark.parametrize("contents", [["a", ""], [" "], ["a", 1], [None], {"a": "b"}, "a", [["a"]]])
def test_a_batch_with_anything_but_contents_is_refused_as_a_whole(
    user: Client, group: str, contents: object
) -> None:
    assert push(user, group, contents).status == 400
    assert pop(user, group).json == []


@pytest.mark.parametrize("body", [b"", b"[", b'["a",]', b'["\xff"]', b'["\\ud800"]', b"[" * 10**6])
def test_a_batch_that_is_no_json_is_refused(user: Client, group: str, body: bytes) -> None:
    for path in ("push", "ack"):
        answer = user.ask("POST", f"/queue/batch/{path}", body, consumerGroup=group)
        assert answer.status == 400, answer.body


def test_a_batch_has_a_limit_of_bytes(user: Client, group: str) -> None:
    assert push(user, group, ["x" * (2**20 + 1)]).status == 413
    refused = push(user, group, ["x" * 2**20] * 17)
    assert (refused.status, refused.json["code"]) == (413, "batch_too_large")
    assert pop(user, group).json == []


def test_a_batch_has_a_limit_of_messages(user: Client, group: str) -> None:
    assert push(user, group, ["x"] * 10_001).status == 413
    assert push(user, group, ["x"] * 10_000).status == 200


def test_priority_and_schedule_count_for_all_of_a_batch(user: Client, group: str) -> None:
    push(user, group, ["a", "b"])
    pushed = push(user, group, ["c", "d"], priority="7")
    assert [one["priority"] for one in pushed.json] == [7, 7]
    later = to_datetime(SystemClock().now_ns()) + timedelta(hours=1)
    assert push(user, group, ["e"], scheduledAt=later.isoformat()).status == 200
    assert [one["content"] for one in pop(user, group).json] == ["c", "d", "a", "b"]


def test_a_pop_gives_ten_unless_told_otherwise(user: Client, group: str) -> None:
    push(user, group, [str(number) for number in range(120)])
    assert len(pop(user, group).json) == 10
    assert len(pop(user, group, "?count=1").json) == 1
    assert len(pop(user, group, "?count=100").json) == 100
    assert len(pop(user, group, "?count=100").json) == 9


@pytest.mark.parametrize("count", ["0", "101", "-1", "x", "%20"])
def test_any_other_count_is_refused(user: Client, group: str, count: str) -> None:
    assert pop(user, group, f"?count={count}").status == 400


def test_a_pop_of_a_group_that_nobody_pushed_to_is_empty(user: Client, group: str) -> None:
    assert (pop(user, group).status, pop(user, group).json) == (200, [])


def test_an_ack_counts_what_the_group_holds(user: Client, group: str) -> None:
    ids = [one["id"] for one in push(user, group, ["a", "b", "c"]).json]
    pop(user, group)
    assert ack(user, group, [ids[0], "unknown", ids[2]]).json == 2
    assert ack(user, group, []).json == 0
    assert ack(user, f"{group}-nobody", ids).json == 0


def test_an_ack_of_nothing_needs_a_group_too(user: Client) -> None:
    assert user.send_json("POST", "/queue/batch/ack", []).status == 400


def test_content_may_be_any_text(user: Client, group: str) -> None:
    contents = ["äöü€ \U0001f600", json.dumps({"a": 1}), "\u0000 \u2028"]
    push(user, group, contents)
    assert [one["content"] for one in pop(user, group).json] == contents
