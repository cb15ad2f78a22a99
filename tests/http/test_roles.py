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
