"""Who may do what: every endpoint, for everybody."""

from __future__ import annotations

import re
from typing import NamedTuple

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
]
API_ADMIN = [("POST", "/api/consumers/addDependency")]

# All that may be open: a new path is closed, or is named here.
DOCUMENTED_OPEN = {
    "GET /livez",
    "GET /readyz",
    "GET /actuator/health",
    "GET /openapi.json",
    "GET /docs",
    "GET /swagger-ui/index.html",
    "POST /auth/local",
    "POST /auth/password",
    "POST /api/users/create",
}


class Endpoint(NamedTuple):
    """As the document has it, with names that nobody has for its parameters."""

    method: str
    template: str
    role: str | None

    def ask(self, client: Client, **headers: str) -> int:
        path = re.sub(r"\{\w+\}", "nobody", self.template)
        return client.ask(self.method, path, consumerGroup="roles", **headers).status


@pytest.fixture(scope="module")
def endpoints(server: Server) -> list[Endpoint]:
    paths = server.client().ask("GET", "/openapi.json").json["paths"]
    found = []
    for path, operations in paths.items():
        for method, operation in operations.items():
            stated = re.search(r"Role: (\w+)\.", operation["description"])
            role = stated.group(1) if stated else None
            assert bool(operation["security"]) == (role is not None), path
            found.append(Endpoint(method.upper(), path, role))
    return found


def test_every_endpoint_of_the_document_asks_for_its_role(
    server: Server, endpoints: list[Endpoint]
) -> None:
    # Given everything that the document has, for those without a name, with a wrong one, a user
    # and an admin
    anyone, wrong = server.client(), server.client("nobody", "wrong")
    user, admin = server.client("user", "password"), server.client("admin", "adminpassword")
    is_open = {f"{one.method} {one.template}" for one in endpoints if one.role is None}
    assert is_open == DOCUMENTED_OPEN
    assert {one.role for one in endpoints} == {None, "USER", "ADMIN"}
    for one in endpoints:
        # Then who is not known is turned away, after some guesses without a look
        strangers = {one.ask(anyone), one.ask(wrong), one.ask(anyone, Authorization="Bearer a.b.c")}
        if one.role is None:
            assert max(strangers) < 500, one
            continue
        assert strangers <= {401, 429}, one
        # And a user gets to what is for users alone, an admin to everything
        statuses = one.ask(user), one.ask(admin)
        assert (statuses[0] == 403) == (one.role == "ADMIN"), (one, statuses)
        assert all(status < 500 and status != 401 for status in statuses), (one, statuses)
        assert statuses[1] != 403, (one, statuses)


def test_the_document_has_every_path_that_is_named_here(endpoints: list[Endpoint]) -> None:
    named: set[tuple[str | None, str, str]] = {
        ("USER", *one) for one in USER if one[1] != "/nothing"
    }
    named |= {("ADMIN", *one) for one in ADMIN} | {(None, *one) for one in OPEN}
    named |= {("USER", *one) for one in API_USER} | {("ADMIN", *one) for one in API_ADMIN}
    patterns = [(one, re.compile(re.sub(r"\{\w+\}", "[^/]+", one.template))) for one in endpoints]
    for role, method, path in named:
        roles = [one.role for one, p in patterns if one.method == method and p.fullmatch(path)]
        assert roles == [role], (method, path)


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


@pytest.mark.parametrize(("method", "path"), USER)
def test_nothing_is_kept_between_requests_so_that_no_page_can_misuse_it(
    user: Client, anyone: Client, method: str, path: str
) -> None:
    # Given somebody who is known, sent by a page of elsewhere: no token of a form is asked for
    answer = user.ask(method, path, consumerGroup="roles", Origin="https://elsewhere.example")
    assert answer.status in (200, 400, 404)
    # Then nothing is set that would let the next request in without a name
    assert "set-cookie" not in answer.headers
    again = anyone.ask(method, path, consumerGroup="roles", Origin="https://elsewhere.example")
    assert again.status == 401


@pytest.mark.parametrize(("method", "path"), ADMIN)
def test_the_rest_is_for_admins(user: Client, admin: Client, method: str, path: str) -> None:
    refused = user.ask(method, path, consumerGroup="roles")
    assert (refused.status, refused.json["error"]) == (403, "Forbidden")
    assert admin.ask(method, path, consumerGroup="roles").status in (200, 400, 404)


@pytest.mark.parametrize(("method", "path"), USER)
def test_an_admin_may_do_what_a_user_may(admin: Client, method: str, path: str) -> None:
    assert admin.ask(method, path, consumerGroup="roles").status in (200, 400, 404)


def test_the_api_refuses_in_its_own_words(anyone: Client, user: Client) -> None:
    for method, path in (*API_USER, *API_ADMIN, ("GET", "/api/nothing")):
        answer = anyone.ask(method, path)
        assert (answer.status, answer.json["success"]) == (401, False)
        assert answer.json["code"] == "unauthorized"
    for method, path in API_ADMIN:
        answer = user.ask(method, path)
        assert (answer.status, answer.json["success"]) == (403, False)
