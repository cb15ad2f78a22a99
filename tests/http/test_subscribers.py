"""``/admin/subscribers``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.http.client import Answer, Client
from tests.http.server import Server

PATH = "/admin/subscribers"


def add(admin: Client, name: object, password: object = "secret", **more: object) -> Answer:
    return admin.send_json("POST", PATH, {"username": name, "password": password, **more})


def test_a_subscriber_is_added_listed_and_removed(
    server: Server, admin: Client, group: str
) -> None:
    # Given a new one
    answer = add(admin, group, role="USER", rateLimit=500)
    shown = {"username": group, "role": "USER", "rateLimit": 500}
    assert (answer.status, answer.json) == (201, shown)
    # Then it is listed, without its password
    listed = admin.ask("GET", PATH)
    assert listed.status == 200
    assert shown in listed.json
    assert b"secret" not in listed.body
    # And may log in
    subscriber = server.client(group, "secret")
    assert subscriber.push(group).status == 200
    assert server.client(group, "wrong").push(group).status == 401
    assert subscriber.view(group).status == 403
    # When it is removed, then it may not, at once
    removed = admin.ask("DELETE", f"{PATH}/{group}")
    assert (removed.status, removed.body) == (204, b"")
    assert subscriber.push(group).status == 401
    assert shown not in admin.ask("GET", PATH).json
    assert admin.ask("DELETE", f"{PATH}/{group}").status == 404


def test_a_subscriber_may_be_an_admin(server: Server, admin: Client, group: str) -> None:
    add(admin, group, role="ADMIN")
    assert server.client(group, "secret").view(group).status == 200


def test_a_name_is_taken_once(admin: Client, group: str) -> None:
    assert add(admin, group).status == 201
    assert add(admin, group, "another").status == 400
    for name in ("user", "admin"):
        assert add(admin, name).status == 400
        assert admin.ask("DELETE", f"{PATH}/{name}").status == 400


def test_a_removed_name_can_be_given_again_with_another_password(
    server: Server, admin: Client, group: str
) -> None:
    add(admin, group, "old")
    assert server.client(group, "old").push(group).status == 200
    admin.ask("DELETE", f"{PATH}/{group}")
    add(admin, group, "new")
    assert server.client(group, "old").push(group).status == 401
    assert server.client(group, "new").push(group).status == 200


def test_a_subscriber_has_a_limit_of_its_own(
    server: Server, admin: Client, user: Client, group: str
) -> None:
    add(admin, group, rateLimit=2)
    subscriber = server.client(group, "secret")
    answers = [subscriber.push(group) for _ in range(30)]
    over = [answer for answer in answers if answer.status == 429]
    assert len(over) >= 15
    assert {answer.headers["retry-after"] for answer in over} == {"1"}
    assert user.push(group).status == 200


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        "a",
        {"username": "a"},
        {"password": "a"},
        {"username": "", "password": "a"},
        {"username": "a b", "password": "a"},
        {"username": "a:b", "password": "a"},
        {"username": "x" * 51, "password": "a"},
        {"username": 1, "password": "a"},
        {"username": "a", "password": ""},
        {"username": "a", "password": 1},
        {"username": "a", "password": "x" * 1001},
        {"username": "a", "password": "a", "role": "ROOT"},
        {"username": "a", "password": "a", "rateLimit": "many"},
        {"username": "a", "password": "a", "rateLimit": 1.5},
        {"username": "a", "password": "a", "more": 1},
    ],
)
def test_anything_else_is_refused(admin: Client, value: object) -> None:
    assert admin.send_json("POST", PATH, value).status == 400


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff", b"{" * 60_000, b'{"username":"a","password":"\\ud800"}']
)
def test_what_is_no_json_is_refused(admin: Client, body: bytes) -> None:
    assert admin.ask("POST", PATH, body).status == 400


def test_long_and_unusual_passwords_count_in_full(
    server: Server, admin: Client, group: str
) -> None:
    password = "ä:\0 " + "x" * 200
    add(admin, group, password)
    assert server.client(group, password).push(group).status == 200
    assert server.client(group, password + "x").push(group).status == 401


def test_the_file_has_hashes_and_is_for_its_owner_alone(
    server: Server, admin: Client, group: str
) -> None:
    add(admin, group, "very secret")
    file = Path(server.data) / "users.json"
    assert file.stat().st_mode & 0o777 == 0o600
    [stored] = [one for one in json.loads(file.read_bytes())["users"] if one["username"] == group]
    assert stored["password_hash"].startswith("$2b$")
    assert "very secret" not in file.read_text()
