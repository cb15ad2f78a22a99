"""What the pages point to exists: files of the code, other pages, and headings in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.page import ROOT

PAGES = sorted(
    [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), *(ROOT / "examples").rglob("*.md")]
)
# Where the name of a file may begin.
PLACES = [
    "",
    "src",
    "src/penstock",
    "src/penstock/storage",
    "src/penstock/storage/wal",
    "examples",
]
NAMED = re.compile(r"`([\w/{},]+\.py)`")
LINK = re.compile(r"\]\((?!https?:)([^)\s]+)\)")
BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)

each_page = pytest.mark.parametrize(
    "page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES]
)


def prose_of(page: Path) -> str:
    """A page without its blocks of code."""
    return BLOCK.sub("", page.read_text(encoding="utf-8"))


def spelled_out(name: str) -> list[str]:
    """``a/{b,c}.py`` as a shell reads it."""
    braces = re.fullmatch(r"(.*)\{(.*)\}(.*)", name)
    return (
        [name] if braces is None else [braces[1] + one + braces[3] for one in braces[2].split(",")]
    )


def anchors_of(page: Path) -> set[str]:
    """The headings of a page, as links write them."""
    texts = [re.sub(r"[`*]", "", heading).lower() for heading in HEADING.findall(prose_of(page))]
    return {re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", text).strip()) for text in texts}


@each_page
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    named = {file for name in NAMED.findall(prose_of(page)) for file in spelled_out(name)}

    missing = [
        file for file in named if not any((ROOT / place / file).is_file() for place in PLACES)
    ]
    assert sorted(missing) == []


@each_page
def test_every_link_leads_to_a_page_and_to_a_heading_of_it(page: Path) -> None:
    broken = []
    for link in LINK.findall(prose_of(page)):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            broken.append(link)

    assert broken == []


def test_the_page_about_the_architecture_names_most_of_the_code() -> None:
    page = ROOT / "docs/architecture.md"
    named = {file for name in NAMED.findall(prose_of(page)) for file in spelled_out(name)}

    assert len(named) > 100
