"""Settings in a file: ``NAME=value`` a line, the name a variable's or a property's of LightQ."""

from __future__ import annotations

import os
import re
from pathlib import Path

from penstock.errors import InvalidArgument

__all__ = ["load_settings_file"]

_LINE = re.compile(r"(?:export\s+)?([A-Za-z][\w.-]*)\s*[=:]\s*(.*)")
# LightQ writes a property as ${VARIABLE:default}.
_PLACEHOLDER = re.compile(r"\$\{(\w+)(?::-?([^}]*))?\}")


def load_settings_file(path: Path) -> None:
    """Put what it says into the environment of this process, but for what is set there already.

    ``rate.limit.push-per-second`` is ``RATE_LIMIT_PUSH_PER_SECOND``. What is no setting of ours or
    of LightQ's has no effect. Raises `InvalidArgument` for a file that cannot be read, and for a
    line that says nothing.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as exc:
        raise InvalidArgument(f"the settings in {str(path)!r} cannot be read: {exc}") from exc
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text[0] in "#!":
            continue
        found = _LINE.fullmatch(text)
        if found is None:
            # Without the line: it may hold a password.
            raise InvalidArgument(f"line {number} of {str(path)!r} is no setting: write NAME=value")
        name = re.sub(r"[.-]", "_", found[1]).upper()
        if not os.environ.get(name):
            os.environ[name] = _value(found[2])


def _value(text: str) -> str:
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return _PLACEHOLDER.sub(lambda one: os.environ.get(one[1]) or one[2] or "", text)
