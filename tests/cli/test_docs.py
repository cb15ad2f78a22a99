"""The page about the command line: its examples run, and its tables say what the code says."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from penstock.cli import _Commands
from penstock.cli.connection import Connection
from penstock.cli.exits import MEANINGS
from penstock.cli.lazy import load
from tests.cli.shell import Shell
from tests.docs.page import ROOT, table_in

PAGE = "docs/cli.md"
_FENCE = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands_in(page: str) -> list[str]:
    blocks = _FENCE.findall((ROOT / page).read_text(encoding="utf-8"))
    lines = [line for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.strip() and not line.startswith("#")]


def run_line(penstock: Shell, line: str) -> None:
    """As a shell does: pipes, redirections to and from a file, and an ``||`` behind it."""
    line, _, instead = line.partition(" || ")
    data = b""
    for stage in _split(line):
        data, code = _run_stage(penstock, stage, data)
        expected = 3 if instead == "test $? -eq 3" else 0
        assert code in (0, expected), f"{line}: {code}"


def _split(line: str) -> list[list[str]]:
    stages: list[list[str]] = [[]]
    words = shlex.shlex(line, posix=True, punctuation_chars="|<>")
    words.whitespace_split = True
    for word in words:
        if word == "|":
            stages.append([])
        else:
            stages[-1].append(word)
    return stages


def _run_stage(penstock: Shell, words: list[str], data: bytes) -> tuple[bytes, int]:
    target = None
    while len(words) > 2 and words[-2] in "<>":
        *words, sign, path = words
        if sign == "<":
            data = Path(path).read_bytes()
        else:
            target = Path(path)
    if words[0] == "penstock":
        result = penstock(*words[1:], stdin=data)
        output, code = result.stdout_bytes, result.exit_code
    else:
        assert words[0] == "printf", words
        done = subprocess.run(words, input=data, capture_output=True, check=False)
        output, code = done.stdout, done.returncode
    if target is not None:
        target.write_bytes(output)
        output = b""
    return output, code


@pytest.mark.parametrize("page", [PAGE, "README.md"])
def test_the_examples_run_one_after_the_other(
    penstock: Shell, page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [line for line in commands_in(page) if "penstock " in line or "printf" in line]
    assert len(lines) > 3
    try:
        for line in lines:
            run_line(penstock, line)
    finally:
        for queue in ("orders", "archive", "jobs"):
            penstock("queue", "delete", queue, "--yes")


def test_every_command_is_in_the_table_with_those_below_it() -> None:
    rows = table_in(PAGE, "command")
    named = {name: row[1] for row in rows for name in re.findall(r"\w+", row[0])}

    assert named.keys() == _Commands.entries.keys()
    for name, entry in _Commands.entries.items():
        for below in getattr(load(name, entry), "commands", {}):
            assert below in re.findall(r"[\w-]+", named[name]), (name, below)


def test_the_table_of_exit_codes_is_that_of_the_code() -> None:
    assert {int(row[0]): row[1] for row in table_in(PAGE, "exit code")} == MEANINGS


def test_the_table_of_connection_options_has_every_one() -> None:
    named = [name for row in table_in(PAGE, "option") for name in re.findall(r"--(\w+)", row[0])]

    assert named == list(Connection._fields)
