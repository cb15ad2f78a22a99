"""The page about coverage names tests that exist, and one for everything that it calls done."""

from __future__ import annotations

import ast
import re

from tests.docs.page import ROOT

PAGE = "docs/coverage.md"
NODE = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
ROWS = [
    [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    for line in (ROOT / PAGE).read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and line.count("|") >= 5
]
POINTS = [row for row in ROWS if row[0] != "point"]


def names_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, functions)}


def test_every_test_that_the_page_names_exists() -> None:
    named = {match.groups() for row in POINTS for match in NODE.finditer(row[2])}
    missing = [
        f"{path}::{name}"
        for path, name in sorted(named)
        if not (ROOT / path).is_file() or name not in names_in(path)
    ]
    assert missing == []


def test_every_point_has_a_status_and_what_is_done_has_a_test() -> None:
    parts = ("`engine`", "`service`", "`fan-out`", "`ingest`", "`pipeline`", "`scale-out`")
    assert [r for r in POINTS if not r[3].startswith((*parts, "planned: ", "`different`: "))] == []
    done = [row for row in POINTS if row[3].startswith(parts)]
    # A point about how to use it is shown by the guide, whose pieces are run as tests.
    assert [row for row in done if not NODE.search(row[2]) and "](embedded.md" not in row[1]] == []
