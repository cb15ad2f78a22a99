"""``/queue/ack``, ``/queue/nack`` and ``/queue/extend-visibility``."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from tests.http.client import Client

UNKNOWN = [
    "01a1dedf-b9cc-7000-8000-0000f380b3bf",
    "no-uuid",
    "%00",
    "%F0%9F%98%80",
    "%ff",
    "x" * 900,
]


def test_an_acked_message_is_consumed(user: Client, admin: Client, group: str) -> None:
    id = user.push(group).json["id"]
    user.pop(group)
    assert user.ack(group, id).status == 200
    [viewed] = admin.view(group).json
    assert viewed["consumed"] is True
    assert viewed["reservedUntil"] is None


def test_an_ack_may_be_repeated(user: Client, group: str) -> None:
    id = user.push(group).json["id"]
    user.pop(group)
    assert [user.ack(group, id).status for _ in range(3)] == [200, 200, 200]


@pytest.mark.parametrize("id", UNKNOWN)
@pytest.mark.parametrize("action", ["ack?", "nack?", "extend-visibility?seconds=5&"])
def test_an_id_that_the_group_does_not_hold_is_not_found(
    user: Client, group: str, action: str, id: str
) -> None:
    user.push(group)
    answer = user.ask("POST", f"/queue/{action}id={id}", consumerGroup=group)
    assert answer.status == 404
    assert answer.json["status"] == 404


@pytest.mark.parametrize("action", ["ack?", "nack?", "extend-visibility?seconds=5&"])
def test_an_id_of_another_group_is_not_found(user: Client, group: str, action: str) -> None:
    id = user.push(group).json["id"]
    user.push(f"{group}-other")
    for other in (f"{group}-other", f"{group}-nobody"):
        answer = user.ask("POST", f"/queue/{action}id={id}", consumerGroup=other)
        assert answer.status == 404


@pytest.mark.parametrize("path", ["ack", "ack?id=", "nack", "nack?reason=a", "extend-visibility"])
def test_the_id_must_be_given(user: Client, group: str, path: str) -> None:
    assert user.ask("POST", f"/queue/{path}", consumerGroup=group).status == 400


def test_a_nacked_message_is_there_again_at_once(user: Client, group: str) -> None:
    id = user.push(group).json["id"]
    user.pop(group)
    assert user.nack(group, id, "timeout").status == 200
    assert user.pop(group).json["id"] == id


def test_a_nack_of_a_consumed_message_is_not_found(user: Client, group: str) -> None:
    id = user.push(group).json["id"]
    user.pop(group)
    user.ack(group, id)
    assert user.nack(group, id).status == 404


def test_a_long_reason_of_a_nack_is_no_error_of_the_server(user: Client, group: str) -> None:
    id = user.push(group).json["id"]
    user.pop(group)
    assert user.nack(group, id, "x" * 5000).status in (200, 400)


@pytest.mark.parametrize("seconds", [1, 600])
def test_an_extension_moves_the_end_of_the_reservation_by_its_seconds(
    user: Client, admin: Client, group: str, seconds: int
) -> None:
    id = user.push(group).json["id"]
    user.pop(group)
    [before] = admin.view(group).json
    assert user.extend(group, id, seconds).status == 200
    [after] = admin.view(group).json
    moved = datetime.fromisoformat(after["reservedUntil"]) - datetime.fromisoformat(
        before["reservedUntil"]
    )
    assert moved == timedelta(seconds=seconds)


def test_what_is_not_reserved_cannot_be_extended(user: Client, group: str) -> None:
    id = user.push(group).json["id"]
    assert user.extend(group, id, 60).status == 400
    user.pop(group)
    user.ack(group, id)
    assert user.extend(group, id, 60).status == 400


@pytest.mark.parametrize("seconds", ["0", "-1", "", "x", "1e3", "1.5", "999999999999", "%C2%B2"])
def test_seconds_must_be_a_positive_number(user: Client, group: str, seconds: str) -> None:
    id = user.push(group).json["id"]
    user.pop(group)
    assert user.extend(group, id, seconds).status == 400


def test_seconds_must_be_given(user: Client, group: str) -> None:
    id = user.push(group).json["id"]
    user.pop(group)
    answer = user.ask("POST", f"/queue/extend-visibility?id={id}", consumerGroup=group)
    assert answer.status == 400
