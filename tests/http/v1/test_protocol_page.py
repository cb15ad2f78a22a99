"""The protocol page has every call of the native API, and every code."""

from __future__ import annotations

import re
from pathlib import Path

from penstock import errors
from tests.http.v1.conftest import Api

_PAGE = Path(__file__).parents[3] / "docs" / "protocol.md"
_SUBSCRIPTION = "/v1/queues/{queue}/subscriptions/{subscription}"
# These are about a data directory, and never come over HTTP.
_AT_START = {"directory_locked", "newer_format", "unknown_backend"}
# And these about users, who have pages of their own.
_OF_USERS = {"user_exists", "user_not_found"}


def _calls() -> set[tuple[str, str]]:
    found = set()
    for heading in re.findall(r"^### (`.*)$", _PAGE.read_text(encoding="utf-8"), re.MULTILINE):
        first, *others = re.findall(r"`([^`]+)`", heading)
        method, path = first.split(" ")
        path = path.partition("?")[0].replace("…/{subscription}", _SUBSCRIPTION)
        found.add((method, path))
        found |= {(method, path.rpartition("/")[0] + other.lstrip("…")) for other in others}
    return found


def test_every_call_is_on_the_page_and_no_other(api: Api) -> None:
    paths = api.get("/openapi.json").json["paths"]
    declared = {
        (method.upper(), path)
        for path, methods in paths.items()
        for method in methods
        if path.startswith("/v1/")
    }

    assert _calls() == declared


def test_every_code_is_on_the_page() -> None:
    text = _PAGE.read_text(encoding="utf-8")
    codes = {
        kind.code
        for kind in map(vars(errors).get, errors.__all__)
        if isinstance(kind, type)
        and issubclass(kind, errors.PenstockError)
        and not kind.__subclasses__()
    }

    assert [code for code in sorted(codes - _AT_START - _OF_USERS) if f"`{code}`" not in text] == []
