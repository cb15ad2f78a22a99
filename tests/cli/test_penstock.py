"""The command itself."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from typing import Any

import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli import _Commands, app
from penstock.cli.lazy import load
from tests.client.server import Server

runner = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"})

GROUPS = {
    name: command
    for name, entry in _Commands.entries.items()
    if hasattr(command := load(name, entry), "commands")
}
PATHS = [
    *([name] for name in _Commands.entries),
    *([name, sub] for name, group in GROUPS.items() for sub in group.commands),
]


def test_the_version_is_shown() -> None:
    result = runner.invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.output == f"penstock {penstock.__version__}\n"


def test_without_a_command_the_help_is_shown() -> None:
    result = runner.invoke(app, [])
    assert "wal" in result.output
    assert "Exit codes" in result.output


def test_an_unknown_command_is_wrong_usage() -> None:
    assert runner.invoke(app, ["nonsense"]).exit_code == 2
    assert runner.invoke(app, ["queue", "nonsense"]).exit_code == 2


def test_for_a_misspelt_command_another_is_suggested() -> None:
    assert "Did you mean 'publish'?" in runner.invoke(app, ["publsh"]).stderr
    assert "Did you mean 'purge'?" in runner.invoke(app, ["queue", "prge"]).stderr


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_the_lines_of_a_help_text_end_where_the_terminal_does(path: list[str]) -> None:
    result = runner.invoke(app, [*path, "--help"], env={"COLUMNS": "60"})
    shown = [line.strip() for line in result.output.splitlines()]
    for line, following in pairwise(shown[shown.index("") :]):
        if not line or not following or line.startswith(("╭", "Usage:")):
            continue
        if line.startswith("│"):
            break
        # The first word of the next line would not have fitted.
        assert len(line) + 1 + len(following.split()[0]) > 58, line


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_the_usage_has_brackets_and_dots_once(path: list[str]) -> None:
    output = runner.invoke(app, [*path, "--help"]).output
    usage = next(line for line in output.splitlines() if "Usage:" in line)
    assert "[[" not in usage
    assert "...}" not in usage


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_every_command_has_a_help_text(path: list[str]) -> None:
    result = runner.invoke(app, [*path, "--help"])

    assert result.exit_code == 0
    assert f"Usage: penstock {' '.join(path)} " in result.output
    described = [line for line in result.output.splitlines() if line.startswith("│ ")]
    assert all(line.strip("│* ") for line in described)


def command_at(path: list[str]) -> Any:
    command: Any = load(path[0], _Commands.entries[path[0]])
    return command.commands[path[1]] if len(path) > 1 else command


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_all_that_is_said_of_a_parameter_is_shown(path: list[str]) -> None:
    """What looks like markup would be taken for it, and be missing."""
    shown = set(runner.invoke(app, [*path, "--help"]).output.split())
    for parameter in command_at(path).params:
        assert set(parameter.help.split()) <= shown, parameter.name


def test_the_list_of_commands_says_what_each_says_itself() -> None:
    for name, entry in _Commands.entries.items():
        command: Any = load(name, entry)
        assert command.name == name
        assert command.help.partition("\n")[0] == entry.help


def test_every_parameter_has_a_word_about_it() -> None:
    without = []
    for path in PATHS:
        without += [(path, one.name) for one in command_at(path).params if not one.help]

    assert without == []


def test_the_list_of_commands_imports_none_of_them() -> None:
    code = (
        "import sys; from penstock.cli import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'aiohttp', 'blacksheep', 'msgspec', 'google.protobuf', 'penstock.broker'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (0, "")


def test_a_client_brings_nothing_of_a_server() -> None:
    code = (
        "import sys, penstock.cli.queue, penstock.client\n"
        "heavy = {'blacksheep', 'google.protobuf', 'penstock.broker', 'penstock.core.machine'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (0, "")


def test_the_entry_point_runs() -> None:
    code = "from penstock.cli import main; main()"
    command = [sys.executable, "-c", code, "--version"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("penstock ")


# Completion.


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_completion_is_printed_for_a_shell(shell: str) -> None:
    result = runner.invoke(app, ["completion", shell])

    assert result.exit_code == 0
    assert "_PENSTOCK_COMPLETE" in result.output


def test_a_shell_that_is_unknown_is_wrong_usage() -> None:
    assert runner.invoke(app, ["completion", "cmd"]).exit_code == 2


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("penstock pu", {"publish"}),
        ("penstock queue p", {"purge"}),
        ("penstock publish --top", {"--topic"}),
        ("penstock sub create --on-d", {"--on-dead-parent"}),
        ("penstock completion z", {"zsh"}),
    ],
)
def test_bash_completes_commands_and_options(words: str, expected: set[str]) -> None:
    assert completed(words) == expected


def completed(words: str, **environment: str) -> set[str]:
    variables = {
        "_PENSTOCK_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
        **environment,
    }
    result = CliRunner().invoke(app, [], env=variables, prog_name="penstock")
    return set(result.stdout.split())


def test_names_are_completed_by_asking_the_server(server: Server, queue: str) -> None:
    words = {"PENSTOCK_URL": server.url}

    assert completed(f"penstock view {queue[:-1]}", **words) >= {queue}
    assert completed(f"penstock sub show {queue} d", **words) == {"default"}


@pytest.mark.parametrize(
    "environment",
    [
        {"PENSTOCK_URL": "http://127.0.0.1:1"},
        {"PENSTOCK_URL": "nonsense"},
        {"PENSTOCK_USER": "somebody"},
        {"PENSTOCK_PASSWORD": "secret"},
    ],
)
def test_without_an_answer_nothing_is_completed_and_nobody_is_asked(
    environment: dict[str, str],
) -> None:
    assert completed("penstock view q", **environment) == set()
    assert completed("penstock sub show nowhere d", **environment) == set()
