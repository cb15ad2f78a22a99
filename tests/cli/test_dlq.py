"""``penstock dlq``."""

from __future__ import annotations

import pytest

from tests.cli.shell import Shell


@pytest.fixture
def ids(penstock: Shell, queue: str) -> list[str]:
    """Of three messages that failed for good."""
    penstock.ok("sub", "alter", queue, "default", "--max-deliveries", "1")
    penstock.ok("publish", queue, "-m", "a", "-m", "b", "-m", "c")
    deliveries = penstock.ok("receive", queue, "-n", "3", "--json")
    penstock.ok("nack", queue, "-", "--reason", "out of\npaper", stdin=deliveries)
    return [letter["id"] for letter in penstock.lines("dlq", "list", queue)]


def test_letters_are_listed_with_their_reason(penstock: Shell, queue: str, ids: list[str]) -> None:
    header, *rows = penstock.ok("dlq", "list", queue).splitlines()

    assert header.split()[:4] == ["index", "id", "subscription", "deliveries"]
    assert [row.split()[-1] for row in rows] == ["a", "b", "c"]
    assert all(r"out of\npaper" in row for row in rows)


def test_a_part_of_them_is_listed(penstock: Shell, queue: str, ids: list[str]) -> None:
    found = penstock.lines("dlq", "list", queue, "--start", "1", "-n", "1")

    assert [letter["id"] for letter in found] == [ids[1]]


def test_a_queue_without_letters_says_so(penstock: Shell, queue: str) -> None:
    assert penstock.ok("dlq", "list", queue) == f"{queue} has no dead letters.\n"
    assert penstock.ok("dlq", "list", queue, "--json") == ""


def test_one_or_all_are_replayed(penstock: Shell, queue: str, ids: list[str]) -> None:
    assert penstock.json("dlq", "replay", queue, ids[0]) == {"replayed": 1}
    assert penstock.ok("dlq", "replay", queue, "--all") == "replayed 2\n"

    assert penstock.ok("receive", queue, "-n", "5", "--body") == "a\nb\nc\n"


def test_one_or_all_are_discarded(penstock: Shell, queue: str, ids: list[str]) -> None:
    assert penstock.json("dlq", "discard", queue, ids[0]) == {"discarded": 1}
    assert penstock("dlq", "discard", queue, "--all").exit_code == 2
    assert penstock.ok("dlq", "discard", queue, "--all", "--yes") == "discarded 2\n"

    assert penstock.json("queue", "show", queue)["dead_letters"] == 0


@pytest.mark.parametrize("command", ["replay", "discard"])
def test_an_id_that_is_no_letters_exits_with_1(
    penstock: Shell, queue: str, ids: list[str], command: str
) -> None:
    result = penstock("dlq", command, queue, ids[0], "stranger")

    assert result.exit_code == 1
    assert result.stderr == "message_not_found: 1 of the ids are not those of dead letters\n"


@pytest.mark.parametrize("command", ["replay", "discard"])
def test_it_must_be_said_which_ones(penstock: Shell, queue: str, command: str) -> None:
    assert penstock("dlq", command, queue).exit_code == 2
    assert penstock("dlq", command, queue, "id", "--all").exit_code == 2


def test_an_unknown_queue_is_refused(penstock: Shell) -> None:
    for arguments in (["list", "nowhere"], ["replay", "nowhere", "--all"]):
        result = penstock("dlq", *arguments)
        assert (result.exit_code, result.stderr.partition(":")[0]) == (1, "queue_not_found")
