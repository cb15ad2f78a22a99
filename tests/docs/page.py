"""What the tests read from the documentation: its Python and its tables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

__all__ = ["ROOT", "Piece", "blocks_in", "python_in", "table_in"]

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Piece(NamedTuple):
    """A block of Python, and the line of the page that it begins at."""

    page: str
    line: int
    source: str

    @property
    def is_program(self) -> bool:
        """Whether it is a program of its own; the other pieces of a page continue each other."""
        return "asyncio.run(" in self.source

    @property
    def needs_server(self) -> bool:
        return "Client(" in self.source

    @property
    def padded(self) -> str:
        """The source with the page's line numbers, so that a traceback leads to the page."""
        return "\n" * (self.line - 1) + self.source


def python_in(page: str) -> list[Piece]:
    """The blocks of Python on a page, from top to bottom."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [
        Piece(page, text.count("\n", 0, match.start(1)) + 1, match[1])
        for match in _FENCE.finditer(text)
    ]


def blocks_in(page: str, language: str) -> list[str]:
    """The blocks of another language on a page, from top to bottom."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def table_in(page: str, heading: str) -> list[list[str]]:
    """The rows of the table whose first column has this heading, as cells without backquotes."""
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith(f"| {heading} |"))
    rows = []
    for line in lines[at + 2 :]:
        if not line.startswith("|"):
            break
        cells = re.split(r"(?<!\\)\|", line.strip()[1:-1])
        rows.append([cell.strip().strip("`") for cell in cells])
    return rows
