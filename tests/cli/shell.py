"""Runs commands of the program within the tests' process, against a real server."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner, Result

from penstock.cli import app

# What the machine's own environment has must not come in.
_NOBODY = {"PENSTOCK_USER": None, "PENSTOCK_PASSWORD": None, "PENSTOCK_TOKEN": None}


class Shell:
    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(
        self, *arguments: str, stdin: bytes | str | None = None, **environment: str
    ) -> Result:
        env: dict[str, str | None] = {
            **_NOBODY,
            "COLUMNS": "200",
            "NO_COLOR": "1",
            "PENSTOCK_URL": self.url,
            **environment,
        }
        return CliRunner(env=env).invoke(app, list(arguments), input=stdin)

    def ok(self, *arguments: str, stdin: bytes | str | None = None) -> str:
        """Its output; it must succeed."""
        result = self(*arguments, stdin=stdin)
        assert result.exit_code == 0, f"{result.stderr} {result.exception!r}"
        return result.stdout

    def json(self, *arguments: str, stdin: bytes | str | None = None) -> Any:
        return json.loads(self.ok(*arguments, "--json", stdin=stdin))

    def lines(self, *arguments: str, stdin: bytes | str | None = None) -> list[Any]:
        text = self.ok(*arguments, "--json", stdin=stdin)
        return [json.loads(line) for line in text.splitlines()]
