"""What all calls of the native API have in common: problems, roles, request ids, the document."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from penstock.core.config import QueueConfig, SubscriptionConfig
from penstock.http.v1.definition_forms import QueueChangesJson, SubscriptionChangesJson
from penstock.http.v1.fields import MAX_NUMBER
from tests.http.v1.conftest import ADMIN, USER, Api

_METHODS = {"get", "post", "patch", "delete", "put"}
_ADMIN_ONLY = {
    ("post", "/v1/queues"),
    ("put", "/v1/queues/{queue}"),
    ("patch", "/v1/queues/{queue}"),
    ("delete", "/v1/queues/{queue}"),
    ("post", "/v1/queues/{queue}/purge"),
    ("post", "/v1/queues/{queue}/subscriptions"),
    ("put", "/v1/queues/{queue}/subscriptions/{subscription}"),
    ("patch", "/v1/queues/{queue}/subscriptions/{subscription}"),
    ("delete", "/v1/queues/{queue}/subscriptions/{subscription}"),
    ("post", "/v1/queues/{queue}/subscriptions/{subscription}/seek"),
    ("post", "/v1/queues/{queue}/subscriptions/{subscription}/pause"),
    ("post", "/v1/queues/{queue}/subscriptions/{subscription}/resume"),
    ("post", "/v1/queues/{queue}/subscriptions/{subscription}/secret/rotate"),
    ("get", "/v1/queues/{queue}/subscriptions/{subscription}/held"),
    ("post", "/v1/queues/{queue}/subscriptions/{subscription}/release"),
    ("get", "/v1/queues/{queue}/dead-letters"),
    ("post", "/v1/queues/{queue}/dead-letters/replay"),
    ("post", "/v1/queues/{queue}/dead-letters/discard"),
}


def operations(api: Api) -> dict[tuple[str, str], dict[str, Any]]:
    paths = api.get("/openapi.json").json["paths"]
    return {
        (method, path): operation
        for path, methods in paths.items()
        for method, operation in methods.items()
    }


def test_an_error_is_a_problem_with_a_stable_code(api: Api) -> None:
    reply = api.send("GET", "/v1/queues/none", None, {"X-Request-Id": "abc"})

    assert reply.status == 404
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.headers["x-request-id"] == "abc"
    detail = reply.json.pop("detail")
    assert "none" in detail
    assert {**reply.json, "detail": None} == {
        "type": "about:blank",
        "title": "Not Found",
        "status": 404,
        "detail": None,
        "instance": "/v1/queues/none",
        "code": "queue_not_found",
        "request_id": "abc",
    }


def test_lightq_keeps_its_own_error_body(api: Api) -> None:
    reply = api.get("/queue/pop")

    assert reply.status == 400
    assert reply.headers["content-type"] == "application/json"
    assert {"timestamp", "status", "error", "message", "path", "requestId"} <= set(reply.json)


def test_a_path_that_is_not_there_is_404_and_a_wrong_method_405(api: Api, queue: str) -> None:
    nothing = api.get("/v1/nothing")
    wrong = api.call("POST", queue)

    assert (nothing.status, nothing.json["code"]) == (404, "not_found")
    assert (wrong.status, wrong.json["code"]) == (405, "method_not_allowed")
    assert wrong.headers["allow"] == "GET, PUT, PATCH, DELETE"
    assert wrong.headers["content-type"] == "application/problem+json"
    assert api.get("/queue/push").status == 405


@pytest.mark.parametrize("who", [None, "user:wrong", USER, ADMIN])
def test_every_call_asks_for_its_role(api: Api, who: str | None) -> None:
    calls = [call for call in operations(api) if call[1].startswith("/v1/")]
    caller = api.anew(who)
    # A wrong password is slow by design, so one call stands for all.
    calls = calls[:1] if who == "user:wrong" else calls

    for method, path in calls:
        reply = caller.send(method.upper(), re.sub(r"\{\w+\}", "no.ne", path))
        if who not in (USER, ADMIN):
            assert reply.status == 401, (method, path)
            assert reply.headers["www-authenticate"].startswith("Basic")
            assert reply.json["code"] == "unauthorized"
        elif who == USER and (method, path) in _ADMIN_ONLY:
            assert (reply.status, reply.json["code"]) == (403, "forbidden"), (method, path)
        else:
            assert reply.status in (200, 400, 404), (method, path)
    caller.close()


def test_the_document_is_whole(api: Api) -> None:
    document = api.get("/openapi.json").json
    references = set(re.findall(rb'"#/components/schemas/(\w+)"', msgspec.json.encode(document)))

    assert document["openapi"] == "3.1.0"
    assert {name.decode() for name in references} <= set(document["components"]["schemas"])
    every = operations(api)
    ids = [one["operationId"] for one in every.values()]
    assert len(ids) == len(set(ids))
    for (method, path), operation in every.items():
        assert method in _METHODS
        assert operation["summary"], path
        told = {one["name"] for one in operation["parameters"] if one["in"] == "path"}
        assert told == set(re.findall(r"\{(\w+)\}", path))
        assert min(map(int, operation["responses"])) < 300
        if operation["security"]:
            assert {"401", "403", "429", "500", "503"} <= set(operation["responses"])
        if "requestBody" in operation:
            assert {"413", "415", "500", "503"} <= set(operation["responses"])
    assert set(every) >= _ADMIN_ONLY
    assert ("post", "/queue/push") in every
    assert ("get", "/metrics") in every


@pytest.mark.parametrize("path", ["/docs", "/swagger-ui/index.html"])
def test_the_page_needs_nothing_from_elsewhere(api: Api, path: str) -> None:
    reply = api.anew(None).get(path)

    assert reply.status == 200
    page = reply.body.decode()
    assert "/v1/queues/{queue}/messages" in page
    assert "/queue/push" in page
    assert not re.search(r"(src|href)=\"(https?:)?//|@import|<script|url\(", page)


def test_the_page_says_values_as_json(api: Api) -> None:
    page = api.anew(None).get("/docs").body.decode()

    assert "default <code>null</code>" in page
    assert "default <code>&quot;hold&quot;</code>" in page
    assert not re.search(r"<code>(None|True|False|\(\)|)</code>", page)
    assert "<li><code>paused</code>: nothing is delivered.</li>" in page


def test_the_page_says_of_each_part_what_it_is_for(api: Api) -> None:
    page = api.anew(None).get("/docs").body.decode()

    headings = re.findall(r'<h2 id="[^"]+">([^<]+)</h2>', page)
    said = dict(re.findall(r'<h2 id="[^"]+">([^<]+)</h2><p>(.+?)</p>', page))
    assert [*said, "Forms"] == headings
    assert said["Queue"].startswith("<code>/queue</code>: the API of LightQ.")


def test_the_page_has_limits_to_the_last_digit(api: Api) -> None:
    page = api.anew(None).get("/docs").body.decode()

    assert f"integer ≥ 0 ≤ {MAX_NUMBER}" in page
    assert "e+" not in page


def test_what_can_be_altered_is_what_can_be_set() -> None:
    assert QueueChangesJson.__struct_fields__ == QueueConfig.__struct_fields__
    assert SubscriptionChangesJson.__struct_fields__ == SubscriptionConfig.__struct_fields__
