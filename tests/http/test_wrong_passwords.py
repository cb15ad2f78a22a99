"""A wrong password opens nothing, anywhere; guessing gets slow, and others do not notice."""

from __future__ import annotations

import pytest

from tests.http.client import Client
from tests.http.server import Server
from tests.http.test_roles import ADMIN, USER


def test_a_wrong_password_opens_nothing_and_guessing_is_throttled(
    server: Server, admin: Client, group: str
) -> None:
    # Given an admin of whom wrong passwords are tried on every endpoint
    value = {"username": group, "password": "right", "role": "ADMIN"}
    assert admin.send_json("POST", "/admin/subscribers", value).status == 201
    owner = server.client(group, "right")
    assert owner.push(group).status == 200
    statuses = []
    for index, (method, path) in enumerate(USER + ADMIN):
        answer = server.client(group, f"wrong {index}").ask(method, path, consumerGroup=group)
        statuses.append(answer.status)
        if answer.status == 429:
            assert int(answer.headers["retry-after"]) >= 1
    # Then none is let in, and soon none is even checked
    assert set(statuses) == {401, 429}
    assert statuses[:5] == [401] * 5
    # And who was in stays in
    for _ in range(20):
        assert owner.push(group).status == 200


@pytest.mark.parametrize(("method", "path"), USER + ADMIN)
def test_an_unknown_name_is_refused_everywhere(server: Server, method: str, path: str) -> None:
    nobody = server.client(f"nobody-{method}-{path}", "guess")
    assert nobody.ask(method, path, consumerGroup="roles").status == 401
