"""The command itself."""

from __future__ import annotations

import subprocess
import sys

from typer.testing import CliRunner

import penstock
from penstock.cli import app

runner = CliRunner()


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


def test_every_command_has_a_help_text() -> None:
    for command in ("inspect", "verify", "repair"):
        result = runner.invoke(app, ["wal", command, "--help"])
        assert result.exit_code == 0
        assert "The data directory." in result.output


def test_the_entry_point_runs() -> None:
    code = "from penstock.cli import main; main()"
    command = [sys.executable, "-c", code, "--version"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("penstock ")
