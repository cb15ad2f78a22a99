"""The body of an error, and request ids."""

from __future__ import annotations

import json
from datetime import datetime

import pytest

from penstock.broker import Broker
from penstock.storage.memory import MemoryStore
from tests.http.client import Answer, Client
from tests.http.in_process import application

ERROR_FIELDS = {"timestamp", "status", "error", "message", "path", "requestId", "code"}


def test_an_error_says_when_what_and_where(user: Client, group: str) -> None:
    answer = user.ack(group, "unknown")
    assert answer.headers["content-type"] == "application/json"
    error = answer.json
    assert error.keys() == ERROR_FIELDS
    assert (error["status"], error["error"], error["path"]) == (404, "Not Found", "/queue/ack")
    assert datetime.fromisoformat(error["timestamp"]).tzinfo is None
    assert error["message"]
    assert error["requestId"] == answer.headers["x-request-id"]


async def test_an_error_that_nobody_expected_is_500_with_the_body_and_tells_no_details(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Broker(MemoryStore()) as broker, application(broker) as app:

        async def fail(*arguments: object, **settings: object) -> None:
            raise RuntimeError("a detail that is nobody's business")

        monkeypatch.setattr(broker, "receive", fail)
        answer = await app.ask("GET", "/queue/pop", consumerGroup="orders")
        assert answer.status == 500
        assert answer.json.keys() == ERROR_FIELDS
        assert (answer.json["status"], answer.json["error"]) == (500, "Internal Server Error")
        assert answer.json["path"] == "/queue/pop"
        assert answer.json["requestId"] == answer.headers["x-request-id"]
        assert b"detail that" not in answer.body
        # And the server goes on
        pushed = await app.ask("POST", "/queue/push", b"hello", consumerGroup="orders")
        assert pushed.status == 200


def answers(
    user: Client, admin: Client, anyone: Client, group: str, **headers: str
) -> list[Answer]:
    return [
        user.push(group, "a", **headers),
        user.ask("GET", "/queue/pop", consumerGroup="a b", **headers),
        anyone.ask("GET", "/queue/pop", consumerGroup=group, **headers),
        user.ask("GET", "/queue/view", consumerGroup=group, **headers),
        user.ask("GET", "/nowhere", **headers),
        user.push(group, "x" * (2**20 + 1), **headers),
        anyone.ask("GET", "/livez", **headers),
        admin.ask("GET", "/queue/view", consumerGroup=group, **headers),
    ]


STATUSES = [200, 400, 401, 403, 404, 413, 200, 200]


@pytest.mark.parametrize("header", ["X_Request_Id", "X_Correlation_Id"])
def test_a_request_id_is_echoed_whatever_the_answer(
    user: Client, admin: Client, anyone: Client, group: str, header: str
) -> None:
    found = answers(user, admin, anyone, group, **{header: "my id 7"})
    assert [answer.status for answer in found] == STATUSES
    assert {answer.headers["x-request-id"] for answer in found} == {"my id 7"}
    # By the name that the client has for it, too
    echoed = {answer.headers.get("x-correlation-id") for answer in found}
    assert echoed == {"my id 7" if header == "X_Correlation_Id" else None}
    assert {a.json["requestId"] for a in found if a.status >= 400} == {"my id 7"}


def test_without_one_a_request_id_is_made(
    user: Client, admin: Client, anyone: Client, group: str
) -> None:
    found = answers(user, admin, anyone, group)
    ids = [answer.headers["x-request-id"] for answer in found]
    assert len(set(ids)) == len(ids)
    assert min(map(len, ids)) >= 16


def test_the_request_id_goes_before_the_correlation_id(user: Client, group: str) -> None:
    answer = user.push(group, "a", X_Request_Id="first", X_Correlation_Id="second")
    assert answer.headers["x-request-id"] == "first"
    assert answer.headers["x-correlation-id"] == "second"


@pytest.mark.parametrize("given", ["x" * 500, "\xe4", ""])
def test_a_request_id_that_cannot_be_echoed_is_replaced(
    user: Client, group: str, given: str
) -> None:
    assert user.push(group, "a", X_Request_Id=given).headers["x-request-id"] != given
    answer = user.push(group, "a", X_Correlation_Id=given)
    assert answer.headers["x-correlation-id"] == answer.headers["x-request-id"] != given


@pytest.mark.parametrize("path", ["/%ff", "/queue/%00", "/queue//push", "/%2e%2e", "/?a"])
def test_a_path_that_does_not_exist_is_not_found(user: Client, path: str) -> None:
    assert user.ask("GET", path).status == 404


@pytest.mark.parametrize(
    "query", ["?id=%", "?%ff=%ff", "?id", "?&&&", "?id=a&id=b", "?" + "a=1&" * 5000]
)
def test_a_strange_query_is_no_error_of_the_server(user: Client, group: str, query: str) -> None:
    assert user.ask("POST", f"/queue/ack{query}", consumerGroup=group).status in (400, 404)


def test_a_method_that_a_path_does_not_have_is_not_allowed(user: Client) -> None:
    answer = user.ask("PUT", "/queue/push", "a")
    assert (answer.status, answer.headers["allow"]) == (405, "POST")


def test_an_answer_without_content_has_no_length(admin: Client, group: str) -> None:
    assert admin.ask("PUT", f"/v1/queues/{group}").status == 201
    answer = admin.ask("DELETE", f"/v1/queues/{group}")
    assert answer.status == 204
    assert "content-length" not in answer.headers


def test_a_body_that_is_compressed_is_refused(admin: Client, group: str) -> None:
    """It would be stored so, and nobody who receives it could know."""
    admin.ask("PUT", f"/v1/queues/{group}")
    for path in ("/queue/push", f"/v1/queues/{group}/messages"):
        answer = admin.ask("POST", path, b"hello", consumerGroup=group, Content_Encoding="gzip")
        assert answer.status == 415
        assert answer.json["code"] == "unsupported_media_type"
        assert answer.headers["accept-encoding"] == "identity"
        plain = admin.ask("POST", path, b"hello", consumerGroup=group, Content_Encoding="identity")
        assert plain.status in (200, 201)


def test_what_groups_that_cannot_be_used_are_answered_is_in_the_document(
    admin: Client, group: str
) -> None:
    # Given a queue that nobody may write to, and that has no subscription `default`
    assert admin.send_json("PUT", f"/v1/queues/{group}", {"events": True}).status == 201
    id = admin.push(group).json["id"]
    document = admin.ask("GET", "/openapi.json").json
    for path, operations in document["paths"].items():
        if not path.startswith("/queue/"):
            continue
        [(method, operation)] = operations.items()
        content = json.dumps([id]) if "requestBody" in operation else None
        # When it, or a name for dead letters, is used as a group
        for name in (f"{group}-events", f"{group}-dlq"):
            answer = admin.ask(
                method.upper(), f"{path}?id={id}&seconds=1", content, consumerGroup=name
            )
            # Then the answer is one that the document has
            assert str(answer.status) in operation["responses"], (method, path, answer)
