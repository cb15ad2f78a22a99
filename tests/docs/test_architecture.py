"""The page about the architecture names files that exist."""

from __future__ import annotations

import re

from tests.docs.page import ROOT

# Where a name on the page may begin.
PLACES = ["src/penstock", "src/penstock/storage"]
NAMED = re.compile(r"`([\w/{},]+\.py)`")


def spelled_out(name: str) -> list[str]:
    """``a/{b,c}.py`` as a shell reads it."""
    braces = re.fullmatch(r"(.*)\{(.*)\}(.*)", name)
    return (
        [name] if braces is None else [braces[1] + one + braces[3] for one in braces[2].split(",")]
    )


def test_every_file_that_the_page_names_exists() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    named = {file for name in NAMED.findall(page) for file in spelled_out(name)}
    missing = [
        file for file in named if not any((ROOT / place / file).is_file() for place in PLACES)
    ]
    assert sorted(missing) == []
    assert len(named) > 50
