"""The Lua scripts: each is one atomic step in its own file, plus the parts of `lib` it uses."""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha1
from importlib.resources import files

__all__ = ["Script", "script"]

_USES = re.compile(r"^-- uses: (.+)$", re.MULTILINE)
_FIRST = re.compile(r"^-- first: (.+)$", re.MULTILINE)


class Script:
    """A script's text, and the digest by which Redis knows it."""

    __slots__ = ("digest", "name", "text", "writes")

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.writes = "no-writes" not in text.partition("\n")[0]
        self.digest = sha1(text.encode(), usedforsecurity=False).hexdigest()


@cache
def script(name: str) -> Script:
    """Assemble a script: its first line, with the flags, then the parts it uses, then the rest.

    The parts under ``first`` come before the others: if they answer, the rest is never run.
    """
    folder = files(__package__) / "lua"
    first, _, rest = (folder / f"{name}.lua").read_text("utf-8").partition("\n")
    lines = (_FIRST.search(rest), _USES.search(rest))
    parts: dict[str, str] = {}
    for line in lines:
        _add(parts, line)
    return Script(name, "\n".join([first, *parts.values(), rest]))


def _add(parts: dict[str, str], line: re.Match[str] | None) -> None:
    """Add the parts that a line names, each after the parts it uses itself."""
    for part in line[1].split() if line else ():
        text = (files(__package__) / "lua" / "lib" / f"{part}.lua").read_text("utf-8")
        _add(parts, _USES.search(text))
        parts.setdefault(part, text)
