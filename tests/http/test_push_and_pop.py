"""``/queue/push`` and ``/queue/pop``."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from penstock.clock import SystemClock
from penstock.core.message import to_datetime
from tests.http.client import Client


def now() -> datetime:
    return to_datetime(SystemClock().now_ns())


def test_a_push_answers_with_the_message(user: Client, group: str) -> None:
    answer = user.push(group, "Hello, World!", Content_Type="text/plain")
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    pushed = answer.json
    # Neither the group nor whether it is consumed, which is for admins
    assert pushed.keys() == {"id", "content", "createdAt", "priority"}
    assert pushed["content"] == "Hello, World!"
    assert str(UUID(pushed["id"])) == pushed["id"]
    # No zone, and it is UTC.
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?", pushed["createdAt"])
    created = datetime.fromisoformat(pushed["createdAt"]).replace(tzinfo=UTC)
    assert abs(now() - created) < timedelta(seconds=30)


def test_a_pop_right_after_a_push_finds_the_message(user: Client, group: str) -> None:
    for number in range(20):
        pushed = user.push(group, f"message {number}").json
        popped = user.pop(group)
        assert popped.status == 200
        assert popped.json == pushed


def test_messages_are_popped_in_the_order_of_their_pushes(user: Client, group: str) -> None:
    for number in range(3):
        user.push(group, str(number))
    assert [user.pop(group).json["content"] for _ in range(3)] == ["0", "1", "2"]


def test_a_popped_message_is_reserved(user: Client, group: str) -> None:
    user.push(group)
    assert user.pop(group).status == 200
    assert user.pop(group).status == 404


def test_consumers_who_pop_at_once_share_no_message(user: Client, group: str) -> None:
    pushed = {user.push(group, str(number)).json["id"] for number in range(40)}
    with ThreadPoolExecutor(8) as consumers:
        answers = list(consumers.map(lambda _: user.pop(group), range(48)))
    popped = [answer.json["id"] for answer in answers if answer.status == 200]
    assert (len(popped), set(popped)) == (40, pushed)
    assert [answer.status for answer in answers].count(404) == 8


def test_a_pop_of_a_group_that_nobody_pushed_to_is_not_found(user: Client, group: str) -> None:
    answer = user.pop(group)
    assert answer.status == 404
    assert answer.json["path"] == "/queue/pop"


def test_groups_keep_apart(user: Client, group: str) -> None:
    user.push(group)
    assert user.pop(f"{group}-other").status == 404


@pytest.mark.parametrize(
    "content", ['{"a": [1, 2]}', "  two words ", "äöü€ \U0001f600", "a=b&c=d", "line\nline", "\0"]
)
def test_any_text_comes_back_as_it_was(user: Client, group: str, content: str) -> None:
    assert user.push(group, content).json["content"] == content
    assert user.pop(group).json["content"] == content


@pytest.mark.parametrize("content", ["", " ", "\n\t "])
def test_a_blank_content_is_refused(user: Client, group: str, content: str) -> None:
    assert user.push(group, content).status == 400


def test_a_content_that_is_no_utf_8_is_refused(user: Client, group: str) -> None:
    assert user.push(group, b"\xff\xfe").status == 400


def test_a_content_of_one_mebibyte_is_accepted_and_one_byte_more_is_not(
    user: Client, group: str
) -> None:
    assert user.push(group, "x" * 2**20).status == 200
    refused = user.push(group, "x" * (2**20 + 1))
    assert (refused.status, refused.json["code"]) == (413, "message_too_large")
    assert len(user.pop(group).json["content"]) == 2**20


@pytest.mark.parametrize("name", ["a", "A-z_0-9", "x" * 50])
def test_a_group_is_1_to_50_letters_digits_dashes_and_underscores(user: Client, name: str) -> None:
    assert user.push(name).status == 200


CALLS = [
    ("POST", "/queue/push", "hello"),
    ("GET", "/queue/pop", None),
    ("POST", "/queue/ack?id=a", None),
    ("POST", "/queue/nack?id=a", None),
    ("POST", "/queue/extend-visibility?id=a&seconds=1", None),
    ("GET", "/queue/view", None),
    ("GET", "/queue/dlq/view", None),
    ("POST", "/queue/dlq/replay", '["a"]'),
    ("POST", "/queue/batch/push", '["a"]'),
    ("GET", "/queue/batch/pop", None),
    ("POST", "/queue/batch/ack", '["a"]'),
]


@pytest.mark.parametrize("name", ["", " ", "x" * 51, "a b", "a.b", "a/b", "\xe4", "a,b", "$x"])
@pytest.mark.parametrize(("method", "path", "body"), CALLS)
def test_any_other_group_is_refused_everywhere(
    admin: Client, method: str, path: str, body: str | None, name: str
) -> None:
    answer = admin.ask(method, path, body, consumerGroup=name)
    assert (answer.status, answer.json["error"]) == (400, "Bad Request")
    assert "consumerGroup" in answer.json["message"]


@pytest.mark.parametrize(("method", "path", "body"), CALLS)
def test_the_group_must_be_given(admin: Client, method: str, path: str, body: str | None) -> None:
    answer = admin.ask(method, path, body)
    assert answer.status == 400
    assert "consumerGroup is missing" in answer.json["message"]


@pytest.mark.parametrize("header", ["consumergroup", "CONSUMERGROUP", "ConsumerGroup"])
def test_the_name_of_a_header_may_be_written_in_any_case(
    user: Client, group: str, header: str
) -> None:
    assert user.ask("POST", "/queue/push", "hello", **{header: group}).status == 200
    assert user.pop(group).json["content"] == "hello"


def test_a_name_that_is_kept_for_dead_letters_cannot_be_pushed_to(user: Client) -> None:
    assert user.push("anything-dlq").status == 409


def test_a_higher_priority_comes_first(user: Client, group: str) -> None:
    for priority in ("0", "10", "5"):
        pushed = user.push(group, priority, priority=priority)
        assert pushed.json["priority"] == int(priority)
    user.push(group, "none")
    popped = [user.pop(group).json for _ in range(4)]
    assert [one["content"] for one in popped] == ["10", "5", "0", "none"]
    assert [one["priority"] for one in popped] == [10, 5, 0, 0]


@pytest.mark.parametrize("priority", ["-1", "11", "x", "", "1.5", "99999999999999999999", "\u00b2"])
def test_any_other_priority_is_refused(user: Client, group: str, priority: str) -> None:
    assert user.push(group, "a", priority=priority).status == 400


def test_a_scheduled_message_is_hidden_until_its_time(user: Client, group: str) -> None:
    # Given one for later and one for very soon
    user.push(group, "later", scheduledAt=(now() + timedelta(hours=1)).isoformat())
    soon = now() + timedelta(seconds=0.5)
    user.push(group, "soon", scheduledAt=soon.replace(tzinfo=None).isoformat())
    # Then there is nothing yet
    assert user.pop(group).status == 404
    # When the time of one has come, then it is there, and the other is not
    deadline = time.monotonic() + 10
    while (popped := user.pop(group)).status == 404 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert popped.json["content"] == "soon"
    assert now() >= soon
    assert user.pop(group).status == 404


def test_a_schedule_beyond_the_lifetime_is_refused(user: Client, admin: Client, group: str) -> None:
    # Given a message that is to be popped after its lifetime, which is a day
    later = (now() + timedelta(days=2)).isoformat()
    # Then it is refused, with the setting to change
    refused = user.push(group, "late", scheduledAt=later)
    assert (refused.status, refused.json["code"]) == (400, "invalid_argument")
    assert f"raise message_ttl_seconds of queue '{group}'" in refused.json["message"]
    assert admin.view(group).json == []
    # When that is changed, then it is accepted
    admin.send_json("PATCH", f"/v1/queues/{group}", {"message_ttl_seconds": 3 * 86_400})
    assert user.push(group, "late", scheduledAt=later).status == 200


def test_a_schedule_in_the_past_is_now(user: Client, group: str) -> None:
    user.push(group, "a", scheduledAt="2020-01-01T00:00:00Z")
    assert user.pop(group).status == 200


@pytest.mark.parametrize(
    "moment", ["tomorrow", "", "2026-13-01T00:00:00", "1e9", "99999-01-01T00:00:00"]
)
def test_any_other_schedule_is_refused(user: Client, group: str, moment: str) -> None:
    assert user.push(group, "a", scheduledAt=moment).status == 400


@pytest.mark.parametrize(
    "moment", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "9999-12-31T00:00:00"]
)
def test_a_schedule_at_the_ends_of_time_is_no_error_of_the_server(
    user: Client, group: str, moment: str
) -> None:
    assert user.push(group, "a", scheduledAt=moment).status in (200, 400)
