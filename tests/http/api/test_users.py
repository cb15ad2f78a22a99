"""``POST /api/users/create``, and who may."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.http.api.world import World, world
from tests.http.client import basic

PUBLIC = {"host": "0.0.0.0", "user_password": "u", "admin_password": "a"}
OWN_ADMIN = {"admin_password": "a"}


async def test_a_user_is_created_as_the_document_shows_and_has_an_id(api: World) -> None:
    answer = await api.create("prem@gmail.com")
    assert answer.status == 200
    assert answer.json == {"success": True, "message": "user created.", "id": answer.json["id"]}
    assert len(answer.json["id"]) == 24


async def test_a_new_user_logs_in_by_email_for_a_token_or_by_basic(api: World) -> None:
    person = await api.person("prem")
    assert (await api.publish(1)).status == 200
    subscribe = {"topic": "sql", "callback_url": "http://127.0.0.1:1/"}
    for header in (person.token, f"Bearer {person.token}", basic(person.email, "secret")):
        answer = await api.post("/api/consumers/subscribe", subscribe, header)
        assert answer.status == 200


async def test_an_email_is_taken_once_however_it_is_written(api: World) -> None:
    assert (await api.create("prem@gmail.com")).status == 200
    for email in ("prem@gmail.com", "Prem@Gmail.com"):
        answer = await api.create(email)
        assert answer.status == 409
        assert answer.json["success"] is False
        assert answer.json["code"] == "user_exists"


async def test_without_a_role_one_is_a_user(api: World) -> None:
    value = {"name": "x", "email": "a@b.c", "password": "secret"}
    assert (await api.post("/api/users/create", value)).status == 200
    token = await api.log_in("a@b.c")
    answer = await api.post("/api/consumers/addDependency", {}, token)
    assert answer.status == 403


@pytest.mark.parametrize(
    ("settings", "role", "by_nobody", "by_user", "by_admin"),
    [
        # On loopback anybody may come in
        ({}, "user", 200, 200, 200),
        # And be the first admin, if there is none but the one whose password everybody knows
        ({}, "admin", 200, 200, 200),
        (OWN_ADMIN, "admin", 401, 403, 200),
        (OWN_ADMIN, "user", 200, 200, 200),
        # On a public address nobody may, unless it is said
        (PUBLIC, "user", 401, 403, 200),
        (PUBLIC, "admin", 401, 403, 200),
        (PUBLIC | {"registration": "open"}, "user", 200, 200, 200),
        (PUBLIC | {"registration": "open"}, "admin", 401, 403, 200),
        ({"registration": "admin"}, "user", 401, 403, 200),
        (PUBLIC | {"admin_password": "adminpassword"}, "admin", 401, 403, 200),
    ],
)
async def test_who_may_add_whom(
    settings: dict[str, Any], role: str, by_nobody: int, by_user: int, by_admin: int
) -> None:
    passwords = {"user_password": "password", "admin_password": "adminpassword"} | settings
    for who, expected in (("", by_nobody), ("user", by_user), ("admin", by_admin)):
        async with world(**settings) as api:
            token = await api.log_in(who, passwords[f"{who}_password"]) if who else ""
            answer = await api.create("new@example.com", role, token)
            assert answer.status == expected
            assert answer.json["success"] is (expected == 200)


@pytest.mark.parametrize("role", ["user", "admin"])
async def test_on_loopback_a_page_of_some_site_is_a_stranger(api: World, role: str) -> None:
    value = {"name": "x", "email": "a@b.c", "password": "secret", "role": role}
    # Given pages that a browser on this machine shows, and that ask in its name
    for origin in (
        "https://evil.example",
        "http://127.0.0.1.evil.example",
        "null",
        "",
        "http://[x",
    ):
        answer = await api.post("/api/users/create", value, origin=origin)
        assert (answer.status, answer.json["success"]) == (401, False), origin
    # Then a page of this machine may, and so may an admin wherever it is
    for number, origin in enumerate(("http://localhost:3000", "http://[::1]:8080")):
        admin = await api.admin() if number else ""
        named = value | {"email": f"{number}@b.c"}
        answer = await api.post("/api/users/create", named, admin, origin=origin)
        assert answer.status == 200, origin
    named = value | {"email": "last@b.c"}
    answer = await api.post("/api/users/create", named, await api.admin(), origin="https://a.b")
    assert answer.status == 200


async def test_after_the_first_admin_only_admins_add_admins(api: World) -> None:
    assert (await api.create("first@example.com", "admin")).status == 200
    assert (await api.create("second@example.com", "admin")).status == 401
    user = await api.person("third")
    assert (await api.create("fourth@example.com", "admin", user.token)).status == 403
    admin = await api.log_in("first@example.com")
    assert (await api.create("fifth@example.com", "admin", admin)).status == 200


async def test_of_many_who_want_to_be_the_first_admin_one_is(api: World) -> None:
    answers = await asyncio.gather(*[api.create(f"{n}@example.com", "admin") for n in range(8)])
    assert Counter(answer.status for answer in answers) == {200: 1, 401: 7}


async def test_a_wrong_token_is_not_passed_over(api: World) -> None:
    for header in ("a.b.c", "Bearer a.b.c", "nonsense", basic("user", "wrong")):
        answer = await api.create("a@b.c", "user", header)
        assert (answer.status, answer.json["success"]) == (401, False)


@pytest.mark.parametrize(
    "change",
    [
        {"name": None},
        {"name": ""},
        {"email": None},
        {"email": "nobody"},
        {"email": "a@"},
        {"email": "a b@c"},
        {"email": "a:b@c"},
        {"email": "a@b\n"},
        {"email": "x" * 300 + "@b"},
        {"password": None},
        {"password": ""},
        {"password": 1},
        {"role": "root"},
        {"role": "ADMIN"},
        {"role": None},
        {"id": "1"},
        {"after": []},
        {"stamp": "x"},
    ],
)
async def test_anything_else_is_refused(api: World, change: dict[str, object]) -> None:
    value = {"name": "x", "email": "a@b.c", "password": "x", "role": "user"} | change
    value = {key: one for key, one in value.items() if one is not None or key == "role"}
    answer = await api.post("/api/users/create", value)
    assert (answer.status, answer.json["success"]) == (400, False)


async def test_a_user_of_the_settings_or_a_subscriber_cannot_be_taken_over() -> None:
    async with world(user_username="me@example.com") as api:
        assert (await api.create("me@example.com")).status == 409


async def test_users_are_there_after_a_restart(tmp_path: Path) -> None:
    async with world(data=str(tmp_path)) as api:
        person = await api.person("prem")
    async with world(data=str(tmp_path)) as api:
        assert (await api.create(person.email)).status == 409
        await api.subscribe(person)


async def test_an_admin_lists_and_removes_users_as_subscribers(api: World) -> None:
    person = await api.person("prem")
    admin = await api.admin()
    listed = await api.app.ask("GET", "/admin/subscribers", authorization=admin)
    assert {"username": person.email, "role": "USER", "rateLimit": 0} in listed.json
    path = f"/admin/subscribers/{person.email}"
    assert (await api.app.ask("DELETE", path, authorization=admin)).status == 204
    answer = await api.post("/api/producers/publish", {}, person.token)
    assert (answer.status, answer.json["success"]) == (401, False)
