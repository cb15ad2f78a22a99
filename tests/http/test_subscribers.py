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


def alter(client: Client, name: str, **changes: object) -> Answer:
    return client.send_json("PATCH", f"{PATH}/{name}", changes)


def log_in(client: Client, name: str, password: str) -> Answer:
    return client.send_json("POST", "/auth/local", {"email": name, "password": password})


def test_a_forgotten_password_is_replaced_and_what_the_old_one_granted_is_void(
    server: Server, admin: Client, anyone: Client, group: str
) -> None:
    # Given somebody who registered, and is logged in by token and by Basic
    email = f"{group}@example.org"
    person = {"name": "Eve", "email": email, "password": "old", "role": "user"}
    assert anyone.send_json("POST", "/api/users/create", person).status == 200
    token = log_in(anyone, email, "old").json["token"]
    by_basic = server.client(email, "old")
    assert anyone.push(group, authorization=token).status == 200
    assert by_basic.push(group).status == 200
    # When an admin gives it another password
    altered = alter(admin, email, password="new")
    # Then nothing that the old one opened is open any more, and the new one is
    shown = {"username": email, "role": "USER", "rateLimit": 0}
    assert (altered.status, altered.json) == (200, shown)
    assert anyone.push(group, authorization=token).status == 401
    assert by_basic.push(group).status == 401
    assert log_in(anyone, email, "old").status == 401
    fresh = log_in(anyone, email, "new").json["token"]
    assert anyone.push(group, authorization=fresh).status == 200


def test_a_role_that_was_taken_away_is_gone_at_once(
    admin: Client, anyone: Client, group: str
) -> None:
    add(admin, group, role="ADMIN")
    token = log_in(anyone, group, "secret").json["token"]
    assert anyone.ask("GET", PATH, authorization=token).status == 200
    # When the role changes, then the token opens what the new one may
    assert alter(admin, group, role="USER").json["role"] == "USER"
    assert anyone.ask("GET", PATH, authorization=token).status == 403
    assert anyone.push(group, authorization=token).status == 200
    assert alter(admin, group, role="ADMIN").status == 200
    assert anyone.ask("GET", PATH, authorization=token).status == 200


def test_a_limit_is_changed_and_the_rest_stays(server: Server, admin: Client, group: str) -> None:
    add(admin, group, role="ADMIN", rateLimit=500)
    answer = alter(admin, group, rateLimit=1)
    assert answer.json == {"username": group, "role": "ADMIN", "rateLimit": 1}
    subscriber = server.client(group, "secret")
    assert 429 in [subscriber.push(group).status for _ in range(10)]
    assert alter(admin, group).json == answer.json


def test_only_an_admin_changes_a_user_and_never_one_of_the_settings(
    server: Server, admin: Client, user: Client, anyone: Client, group: str
) -> None:
    add(admin, group)
    own = server.client(group, "secret")
    assert alter(anyone, group, password="x").status == 401
    for client in (user, own):
        assert alter(client, group, password="x", role="ADMIN").status == 403
    for name in ("user", "admin"):
        assert alter(admin, name, password="x").status == 400
    assert alter(admin, "nobody-there", password="x").status == 404
    assert log_in(anyone, group, "secret").status == 200


@pytest.mark.parametrize(
    "changes",
    [
        {"password": ""},
        {"password": None},
        {"password": "x" * 1001},
        {"role": "user"},
        {"rateLimit": -2},
        {"username": "another"},
        {"pasword": "x"},
    ],
)
def test_a_change_that_is_none_changes_nothing(
    admin: Client, anyone: Client, group: str, changes: dict[str, object]
) -> None:
    add(admin, group)
    answer = alter(admin, group, **changes)
    assert answer.status == 400
    assert log_in(anyone, group, "secret").status == 200
