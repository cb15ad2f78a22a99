"""``/queue/view``."""

from __future__ import annotations

import pytest

from tests.http.client import Client


@pytest.fixture
def four(user: Client, group: str) -> list[str]:
    """Ids of a consumed, a reserved and two new messages."""
    ids = [user.push(group, str(number)).json["id"] for number in range(4)]
    user.pop(group)
    user.ack(group, ids[0])
    user.pop(group)
    return ids


def ids_of(admin: Client, group: str, **headers: str) -> list[str]:
    answer = admin.view(group, **headers)
    assert answer.status == 200
    return [one["id"] for one in answer.json]


def test_without_consumed_all_are_shown_oldest_first(
    admin: Client, group: str, four: list[str]
) -> None:
    assert ids_of(admin, group) == four


def test_consumed_yes_shows_the_consumed(admin: Client, group: str, four: list[str]) -> None:
    assert ids_of(admin, group, consumed="yes") == four[:1]


def test_consumed_no_shows_the_others(admin: Client, group: str, four: list[str]) -> None:
    assert ids_of(admin, group, consumed="no") == four[1:]


@pytest.mark.parametrize("value", ["", "maybe", "true", "\xe4"])
def test_an_unknown_value_of_consumed_is_as_if_it_were_absent(
    admin: Client, group: str, four: list[str], value: str
) -> None:
    assert ids_of(admin, group, consumed=value) == four


def test_a_message_is_shown_with_its_state(admin: Client, group: str, four: list[str]) -> None:
    consumed, reserved, new, _ = admin.view(group).json
    assert consumed.keys() == {
        "id",
        "content",
        "createdAt",
        "priority",
        "consumerGroup",
        "consumed",
        "deliveryCount",
        "reservedUntil",
    }
    assert {one["consumerGroup"] for one in (consumed, reserved, new)} == {group}
    assert (consumed["consumed"], reserved["consumed"], new["consumed"]) == (True, False, False)
    assert (reserved["deliveryCount"], new["deliveryCount"]) == (1, 0)
    assert consumed["deliveryCount"] is None
    assert reserved["reservedUntil"] > reserved["createdAt"]
    assert new["reservedUntil"] is None


def test_message_count_bounds_the_answer(admin: Client, group: str, four: list[str]) -> None:
    assert ids_of(admin, group, messageCount="2") == four[:2]
    assert ids_of(admin, group, messageCount="2", consumed="no") == four[1:3]
    assert ids_of(admin, group, messageCount="50") == four


@pytest.mark.parametrize("count", ["0", "-1", "51", "1000000000000", "x", "", "1.0", "\xb2"])
def test_any_other_message_count_is_refused(admin: Client, group: str, count: str) -> None:
    assert admin.view(group, messageCount=count).status == 400


def test_viewing_reserves_nothing(user: Client, admin: Client, group: str) -> None:
    user.push(group)
    for _ in range(3):
        admin.view(group)
    assert user.pop(group).status == 200
    assert admin.view(group).json[0]["deliveryCount"] == 1


def test_a_group_that_nobody_pushed_to_is_empty(admin: Client, group: str) -> None:
    assert admin.view(group).json == []
