"""The Python in the documentation runs, and its tables say what the code says."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from pathlib import Path
from types import CodeType
from typing import Any, get_args

import msgspec
import pytest

import penstock
from penstock import Backoff, NewMessage, QueueConfig, SubscriptionConfig, errors
from penstock.storage import base
from tests.docs.page import ROOT, Piece, python_in, table_in

PAGES = ["README.md", "docs/index.md", "docs/embedded.md"]
# Those that need a server are run where there is one, in `tests/http/test_readme.py`.
PIECES = [piece for page in PAGES for piece in python_in(page) if not piece.needs_server]


def compiled(piece: Piece) -> CodeType:
    path = str(ROOT / piece.page)
    code = compile(piece.padded, path, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert isinstance(code, CodeType)
    return code


async def run(pieces: list[Piece], directory: Path) -> None:
    async with penstock.open(directory) as broker:
        names: dict[str, Any] = {"broker": broker}
        for piece in pieces:
            # With an `await` at its top level a piece is a coroutine, else it has run already.
            unfinished = eval(compiled(piece), names)
            if inspect.isawaitable(unfinished):
                await unfinished


@pytest.mark.parametrize(
    "piece", [p for p in PIECES if p.is_program], ids=lambda p: f"{p.page}:{p.line}"
)
def test_a_program_in_the_documentation_runs(
    piece: Piece, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compiled(piece), {"__name__": "__main__"})
    [directory] = tmp_path.iterdir()
    assert directory.is_dir()


@pytest.mark.parametrize("page", PAGES)
def test_the_pieces_of_a_page_run_one_after_the_other(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = [p for p in PIECES if p.page == page and not p.is_program]
    monkeypatch.chdir(tmp_path)
    asyncio.run(run(pieces, tmp_path / "pieces"))


@pytest.mark.parametrize(
    ("heading", "kind"),
    [
        ("queue setting", QueueConfig),
        ("subscription setting", SubscriptionConfig),
        ("message field", NewMessage),
        ("backoff setting", Backoff),
    ],
)
def test_a_table_of_settings_has_every_setting_with_its_default(
    heading: str, kind: type[msgspec.Struct]
) -> None:
    stated = {row[0]: row[1] for row in table_in("docs/embedded.md", heading)}
    real = {field.name: default_of(field) for field in msgspec.structs.fields(kind)}
    assert list(stated) == list(real)
    names = {"Backoff": Backoff}
    for name, default in real.items():
        if default is not msgspec.NODEFAULT:
            assert eval(stated[name], names) == default, name


def default_of(field: msgspec.structs.FieldInfo) -> object:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


def test_the_page_of_errors_has_every_code_and_its_class() -> None:
    stated = {row[0]: row[1] for row in table_in("docs/errors.md", "code")}
    stated |= {row[0]: row[1] for row in table_in("docs/errors.md", "group's code")}
    real = {getattr(errors, name).code: name for name in errors.__all__}
    assert stated == real


def test_the_storage_contract_is_listed_whole() -> None:
    rows = table_in("docs/architecture.md", "method")
    methods = {name for row in rows for name in re.findall(r"\w+", row[0])}
    values = {name for row in rows for name in re.findall(r"\b[A-Z]\w+", row[1])}

    assert methods == {
        name
        for name, member in vars(base.Store).items()
        if inspect.isfunction(member) and not name.startswith("_")
    }
    assert values == {"NewBatch", "Span"} | {
        value.__name__
        for union in (base.Change, base.Wanted, base.Settlement, base.Action)
        for value in get_args(union)
    }
