"""The request collection in ``docs``: it is that of this version, and it runs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.http.openapi.collection import document_of_this_version, make_collection
from tests.docs.page import ROOT
from tests.http.collection_run import Run, requests_of
from tests.http.server import Server, running

PAGE = ROOT / "docs" / "penstock.postman_collection.json"


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("collection")
    with running("memory:", directory / "log") as server:
        yield server


@pytest.fixture(scope="module")
def collection() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(PAGE.read_text(encoding="utf-8"))
    return found


def test_the_collection_is_that_of_a_running_server(
    own_server: Server, collection: dict[str, Any]
) -> None:
    document = own_server.client().ask("GET", "/openapi.json").json
    assert make_collection(document) == collection, "run `make collection`"


async def test_it_can_be_made_without_a_server(collection: dict[str, Any]) -> None:
    assert make_collection(await document_of_this_version()) == collection


def test_it_has_every_call_of_the_document(own_server: Server, collection: dict[str, Any]) -> None:
    document = own_server.client().ask("GET", "/openapi.json").json
    requests = [item["request"] for item in requests_of(collection)]
    sent = {f"{one['method']} /{'/'.join(one['url']['path'])}" for one in requests}
    for path, operations in document["paths"].items():
        for method in operations:
            call = re.compile(re.sub(r"\{\w+\}", "[^/]+", f"{method.upper()} {path}"))
            assert any(map(call.fullmatch, sent)), (method, path)


def test_every_request_of_it_is_answered_as_documented_and_leaves_nothing_behind(
    own_server: Server, collection: dict[str, Any]
) -> None:
    # Given a server, when the requests are sent in their order, twice
    admin = own_server.client("admin", "adminpassword")
    for _ in range(2):
        run = Run(collection, own_server.client(), admin)
        # Then each has the status that the document gives it
        for item in requests_of(collection):
            run.send(item)
    assert admin.ask("GET", "/v1/queues").json["queues"] == []
    assert admin.ask("GET", "/admin/subscribers").json == []
