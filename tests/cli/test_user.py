"""``penstock user``."""

from __future__ import annotations

import pytest

from tests.cli.shell import Shell


@pytest.fixture
def user(queue: str) -> str:
    """A name that nobody has."""
    return f"user-{queue}"


def may_log_in(penstock: Shell, user: str, password: str) -> bool:
    return penstock("token", "--user", user, PENSTOCK_PASSWORD=password).exit_code == 0


def test_a_user_is_added_listed_and_removed(penstock: Shell, user: str) -> None:
    made = penstock.json("user", "add", user, "--rate-limit", "7", stdin="secret\n")

    assert made == {"username": user, "role": "USER", "rateLimit": 7}
    assert made in penstock.json("user", "list")
    [line] = [one for one in penstock.ok("user", "list").splitlines() if user in one]
    assert line.split() == [user, "USER", "7"]
    assert may_log_in(penstock, user, "secret")

    assert penstock.ok("user", "remove", user, "--yes") == f"removed {user}\n"
    assert not may_log_in(penstock, user, "secret")


def test_a_forgotten_password_is_replaced_and_the_rest_stays(penstock: Shell, user: str) -> None:
    penstock.ok("user", "add", user, "--role", "ADMIN", stdin="old\n")
    token = penstock("token", "--user", user, PENSTOCK_PASSWORD="old").stdout.strip()
    assert penstock("user", "list", PENSTOCK_TOKEN=token).exit_code == 0

    said = penstock.ok("user", "set", user, "--new-password", stdin="new\n")

    assert said == f"changed {user}: ADMIN, rate limit none\n"
    assert penstock("user", "list", PENSTOCK_TOKEN=token).exit_code == 6
    assert not may_log_in(penstock, user, "old")
    assert may_log_in(penstock, user, "new")


def test_a_role_and_a_limit_are_changed_without_a_password(penstock: Shell, user: str) -> None:
    penstock.ok("user", "add", user, stdin="secret\n")

    changed = penstock.json("user", "set", user, "--role", "ADMIN", "--rate-limit", "9")

    assert changed == {"username": user, "role": "ADMIN", "rateLimit": 9}
    assert may_log_in(penstock, user, "secret")


def test_wrong_usage_exits_with_2_and_a_refusal_with_1(penstock: Shell, user: str) -> None:
    assert penstock("user", "set", user).exit_code == 2
    assert penstock("user", "add", user, stdin="").exit_code == 2
    assert penstock("user", "remove", user).exit_code == 2
    for result in (
        penstock("user", "set", user, "--role", "USER"),
        penstock("user", "remove", user, "--yes"),
    ):
        assert (result.exit_code, result.stderr.partition(":")[0]) == (1, "user_not_found")
    result = penstock("user", "set", "admin", "--rate-limit", "1")
    assert (result.exit_code, result.stderr.partition(":")[0]) == (1, "invalid_argument")


def test_a_line_without_end_is_no_password(penstock: Shell) -> None:
    result = penstock("user", "add", "endless", stdin="x" * 100_000)

    assert result.exit_code == 2
    assert "too long" in result.stderr
