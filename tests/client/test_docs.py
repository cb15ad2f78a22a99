"""The page about the client: its Python runs, and its tables say what the code says."""

from __future__ import annotations

import ast
import inspect
from types import CodeType
from typing import Any

import msgspec
import pytest

from penstock import Backoff
from penstock.client import AsyncClient, WorkerSettings, errors
from tests.client.server import Server
from tests.docs.page import ROOT, python_in, table_in

PAGE = "docs/client.md"


async def test_the_pieces_of_the_page_run_one_after_the_other(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: dict[str, Any] = {"print": lambda *values: None}
    monkeypatch.setattr(AsyncClient.__init__, "__defaults__", (server.url,))
    for piece in python_in(PAGE):
        source = piece.padded.replace("http://127.0.0.1:8080", server.url)
        code = compile(source, str(ROOT / PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        assert isinstance(code, CodeType)
        unfinished = eval(code, names)
        if inspect.isawaitable(unfinished):
            await unfinished


def test_the_table_of_worker_settings_has_every_one_with_its_default() -> None:
    stated = {row[0]: row[1] for row in table_in(PAGE, "worker setting")}
    real = {field.name: field.default for field in msgspec.structs.fields(WorkerSettings)}
    del real["queue"]

    assert list(stated) == list(real)
    for name, default in real.items():
        assert eval(stated[name], {"Backoff": Backoff}) == default, name


def test_the_table_of_client_options_has_every_one() -> None:
    stated = [name for row in table_in(PAGE, "option") for name in row[0].split("`, `")]

    assert stated == list(inspect.signature(AsyncClient).parameters)


def test_the_table_of_errors_has_every_one_but_their_root() -> None:
    stated = {row[0]: row[1] for row in table_in(PAGE, "client code")}

    real = {getattr(errors, name).code: name for name in errors.__all__ if name != "ClientError"}
    assert stated == real
