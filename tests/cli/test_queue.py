"""``penstock queue``."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest
import typer

from penstock import QueueConfig
from penstock.cli.queue import app
from tests.cli.shell import Shell


def test_a_queue_is_created_with_settings_and_shown(penstock: Shell, queue: str) -> None:
    name = f"{queue}-more"
    options = "--fifo --max-messages 9 --retention-seconds none --dedup-window-seconds 1.5"

    made = penstock.json("queue", "create", name, *options.split())

    assert made["name"] == name
    config = made["config"]
    assert (config["fifo"], config["max_messages"]) == (True, 9)
    assert (config["retention_seconds"], config["dedup_window_seconds"]) == (None, 1.5)
    assert penstock.json("queue", "show", name) == made


def test_every_setting_is_an_option_with_a_word_about_it(penstock: Shell) -> None:
    for command in ("create", "alter"):
        shown = penstock("queue", command, "--help").stdout
        for field in msgspec.structs.fields(QueueConfig):
            flag = f"--{field.name.replace('_', '-')}"
            (line,) = (line for line in shown.splitlines() if line.startswith(f"│ {flag} "))
            assert len(line.strip("│ ").split("  ")[-1].split()) > 3, line


def test_the_help_of_each_setting_is_its_own_and_has_the_default() -> None:
    names = QueueConfig.__struct_fields__
    commands = cast(Any, typer.main.get_command(app)).commands
    shown = {one.name: one.help for one in commands["create"].params if one.name in names}
    assert len(set(shown.values())) == len(names)
    assert shown["retention_seconds"] == "How long messages are kept. Default: 86400."
    assert shown["max_messages"].endswith(" Default: none.")
    assert shown["retain_unsettled"].endswith(" Default: yes.")
    # A setting that is not altered stays as it is, whatever the default
    assert not [one.help for one in commands["alter"].params if "Default: " in (one.help or "")]


def test_a_queue_is_shown_to_people(penstock: Shell, queue: str) -> None:
    penstock.ok("publish", queue, "-m", "x" * 1500)

    lines = penstock.ok("queue", "show", queue).splitlines()

    found = {line[:22].strip(): line[22:].strip() for line in lines}
    assert found["messages"] == "1"
    assert found["fifo"] == "no"
    assert found["max_messages"] == "none"
    assert found["subscriptions"] == "default"


def test_altering_leaves_the_rest_as_it_was(penstock: Shell, queue: str) -> None:
    penstock.ok("queue", "alter", queue, "--max-messages", "5", "--no-retain-unsettled")

    config = penstock.json("queue", "alter", queue, "--max-messages", "none")["config"]

    assert config["max_messages"] is None
    assert config["retain_unsettled"] is False


def test_queues_are_listed(penstock: Shell, queue: str) -> None:
    penstock.ok("publish", queue, "-m", "a")

    listed = {one["name"]: one for one in penstock.json("queue", "list")}
    shown = penstock.ok("queue", "list").splitlines()

    assert listed[queue]["messages"] == 1
    assert shown[0].split() == [
        "queue",
        "messages",
        "size",
        "dead",
        "letters",
        "subscriptions",
        "created",
    ]
    assert any(line.startswith(f"{queue} ") for line in shown)


def test_a_queue_is_purged_and_deleted(penstock: Shell, queue: str) -> None:
    penstock.ok("publish", queue, "-m", "a", "-m", "b")

    assert penstock.json("queue", "purge", queue, "--yes") == {"purged": 2}
    assert penstock.ok("queue", "purge", queue, "--yes") == f"removed 0 from {queue}\n"
    assert penstock.ok("queue", "delete", queue, "--yes") == f"deleted {queue}\n"
    assert penstock("queue", "show", queue).exit_code == 1


@pytest.mark.parametrize("command", ["purge", "delete"])
def test_what_cannot_be_undone_needs_a_yes(penstock: Shell, queue: str, command: str) -> None:
    penstock.ok("publish", queue, "-m", "a")

    result = penstock("queue", command, queue)

    assert result.exit_code == 2
    assert "--yes" in result.stderr
    assert penstock.json("queue", "show", queue)["messages"] == 1


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--max-messages", "many", "use a number or none"),
        ("--max-messages", "inf", "use a number or none"),
        ("--dedup-window-seconds", "none", "use a number"),
    ],
)
def test_a_value_that_is_none_is_wrong_usage(
    penstock: Shell, queue: str, option: str, value: str, words: str
) -> None:
    result = penstock("queue", "alter", queue, option, value)

    assert result.exit_code == 2
    assert result.stderr == f"{option} is {value!r}: {words}\n"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["show", "nowhere"], "queue_not_found"),
        (["delete", "nowhere", "--yes"], "queue_not_found"),
        (["create", "no name"], "invalid_name"),
        (["create", "x-dlq"], "reserved_queue"),
        (["create", "x", "--max-messages", "0"], "invalid_argument"),
    ],
)
def test_refusals_have_their_code_and_exit_with_1(
    penstock: Shell, arguments: list[str], code: str
) -> None:
    result = penstock("queue", *arguments)

    assert result.exit_code == 1
    assert result.stderr.startswith(f"{code}: ")
    assert result.stderr.count("\n") == 1


def test_a_queue_that_is_there_is_not_made_again(penstock: Shell, queue: str) -> None:
    assert penstock("queue", "create", queue).stderr.startswith("queue_exists: ")


def test_with_if_absent_it_may_be_there(penstock: Shell, queue: str) -> None:
    made = penstock.json("queue", "create", f"{queue}-new", "--if-absent", "--fifo")
    found = penstock.json("queue", "create", f"{queue}-new", "--if-absent")

    assert made["config"]["fifo"] is True
    assert found["config"] == made["config"]


def test_with_if_absent_one_with_other_settings_is_an_error(penstock: Shell, queue: str) -> None:
    refused = penstock("queue", "create", queue, "--if-absent", "--fifo")

    assert refused.exit_code == 1
    assert refused.stderr.startswith("queue_exists: ")
    assert "fifo" in refused.stderr
