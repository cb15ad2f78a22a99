"""Who may do what: every endpoint, for everybody."""

from __future__ import annotations

import pytest

from tests.http.client import Client
from tests.http.server import Server

OPEN = [("GET", "/livez"), ("GET", "/readyz"), ("GET", "/actuator/health")]
USER = [
    ("POST", "/queue/push"),
    ("GET", "/queue/pop"),
    ("POST", "/queue/ack"),
    ("POST", "/queue/nack"),
    ("POST", "/queue/extend-visibility"),
    ("POST", "/queue/batch/push"),
    ("GET", "/queue/batch/pop"),
    ("POST", "/queue/batch/ack"),
    ("GET", "/metrics"),
    ("GET", "/nothing"),
]
ADMIN = [
    ("GET", "/queue/view"),
    ("GET", "/queue/dlq/view"),
    ("POST", "/queue/dlq/replay"),
    ("POST", "/admin/subscribers"),
    ("GET", "/admin/subscribers"),
    ("DELETE", "/admin/subscribers/nobody"),
    ("GET", "/actuator/loggers"),
    ("POST", "/actuator/loggers/ROOT"),
]

API_USER = [
    ("POST", "/api/producers/publish"),
    ("POST", "/api/consumers/subscribe"),
    ("POST", "/api/consumers/unsubscribe"),
    ("GET", "/api/nothing"),
]
API_ADMIN = [("POST", "/api/consumers/addDependency")]
API_OPEN = [("POST", "/api/users/create"), ("POST", "/auth/local"), ("POST", "/auth/password")]


@pytest.mark.parametrize(("method", "path"), OPEN)
def test_health_is_open_to_everybody(server: Server, method: str, path: str) -> None:
    for client in (server.client(), server.client("who", "knows"), server.client("user", "wrong")):
        assert client.ask(method, path).status == 200


@pytest.mark.parametrize(("method", "path"), USER + ADMIN)
def test_without_a_name_nothing_else_is_allowed(anyone: Client, method: str, path: str) -> None:
    answer = anyone.ask(method, path, consumerGroup="roles")
    assert answer.status == 401
    assert answer.headers["www-authenticate"].startswith("Basic ")
    assert answer.json["error"] == "Unauthorized"


@pytest.mark.parametrize(
    "header",
    [
        "Basic",
        "Basic ",
        "Basic !!!",
        "Basic dXNlcg==",
        "Bearer dXNlcjpwYXNzd29yZA==",
        "\xff",
        "Basic /w==",
    ],
)
def test_a_malformed_authorization_is_none(anyone: Client, header: str) -> None:
    assert (
        anyone.ask("GET", "/queue/pop", consumerGroup="roles", Authorization=header).status == 401
    )


@pytest.mark.parametrize(("method", "path"), USER)
def test_a_user_may_use_the_queues(user: Client, method: str, path: str) -> None:
    assert user.ask(method, path, consumerGroup="roles").status in (200, 400, 404)


@pytest.mark.parametrize(("method", "path"), ADMIN)
def test_the_rest_is_for_admins(user: Client, admin: Client, method: str, path: str) -> None:
    refused = user.ask(method, path, consumerGroup="roles")
    assert (refused.status, refused.json["error"]) == (403, "Forbidden")
    assert admin.ask(method, path, consumerGroup="roles").status in (200, 400, 404)


@pytest.mark.parametrize(("method", "path"), USER)
def test_an_admin_may_do_what_a_user_may(admin: Client, method: str, path: str) -> None:
    assert admin.ask(method, path, consumerGroup="roles").status in (200, 400, 404)


@pytest.mark.parametrize(("method", "path"), API_USER + API_ADMIN)
def test_without_a_name_or_with_a_wrong_one_the_api_is_closed(
    server: Server, anyone: Client, method: str, path: str
) -> None:
    nobody = server.client(f"nobody-{path}", "guess")
    for answer in (
        anyone.ask(method, path),
        anyone.ask(method, path, authorization="a.b.c"),
        nobody.ask(method, path),
    ):
        assert (answer.status, answer.json["success"]) == (401, False)
        assert answer.json["code"] == "unauthorized"


@pytest.mark.parametrize(("method", "path"), API_USER)
def test_a_user_may_use_the_api(user: Client, admin: Client, method: str, path: str) -> None:
    for client in (user, admin):
        answer = client.ask(method, path)
        assert (answer.status in (400, 404), answer.json["success"]) == (True, False)


@pytest.mark.parametrize(("method", "path"), API_ADMIN)
def test_only_an_admin_may_order_consumers(
    user: Client, admin: Client, method: str, path: str
) -> None:
    refused = user.ask(method, path)
    assert (refused.status, refused.json["success"]) == (403, False)
    assert admin.ask(method, path).status == 400


@pytest.mark.parametrize(("method", "path"), API_OPEN)
def test_who_is_nobody_yet_may_become_somebody(anyone: Client, method: str, path: str) -> None:
    assert anyone.ask(method, path).status == 400
