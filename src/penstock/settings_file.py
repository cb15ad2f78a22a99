"""Settings in a file: ``NAME=value`` a line, the name a variable's or a property's of LightQ."""

from __future__ import annotations

import os
import re
from pathlib import Path

from penstock.errors import InvalidArgument
from penstock.settings import LIGHTQ_VARIABLES, VARIABLES
from penstock.variables import CLIENT_VARIABLES, PREFIX, meant

__all__ = ["load_settings_file"]

_LINE = re.compile(r"(?:export\s+)?([A-Za-z][\w.-]*)\s*[=:]\s*(.*)")
# LightQ writes a property as ${VARIABLE:default}.
_PLACEHOLDER = re.compile(r"\$\{(\w+)(?::-?([^}]*))?\}")


def load_settings_file(path: Path) -> list[str]:
    """Load it into the environment of this process, except for what is already set there.

    ``rate.limit.push-per-second`` is ``RATE_LIMIT_PUSH_PER_SECOND``. Properties of LightQ or Spring
    that are not a setting have no effect, and are returned. Raises `InvalidArgument` for a file
    that cannot be read, a malformed line, or an unknown setting.
    """
    unused = []
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
            raise InvalidArgument(
                f"line {number} of {str(path)!r} is not a setting: write NAME=value"
            )
        name = re.sub(r"[.-]", "_", found[1]).upper()
        _check_known(name, f"line {number} of {str(path)!r}")
        if not name.startswith(PREFIX) and name not in LIGHTQ_VARIABLES:
            unused.append(found[1])
        if not os.environ.get(name):
            os.environ[name] = _value(found[2])
    return unused


def _check_known(name: str, where: str) -> None:
    """Refuse unknown names with our prefix, except for those of the client."""
    if name.startswith(PREFIX):
        if name in VARIABLES | CLIENT_VARIABLES:
            return
        near = meant(name, VARIABLES)
        advice = "remove it" if near is None else f"did you mean {near}?"
        raise InvalidArgument(f"{where}: there is no setting {name}: {advice}")
    if f"{PREFIX}{name}" in VARIABLES:
        raise InvalidArgument(f"{where}: {name} has no effect: write {PREFIX}{name}")


def _value(text: str) -> str:
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return _PLACEHOLDER.sub(lambda one: os.environ.get(one[1]) or one[2] or "", text)
