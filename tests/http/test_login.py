"""``/auth/*``, and what a token opens, over HTTP."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import jwt
import pytest

import penstock
from penstock.http.auth.authenticator import FREE_FAILURES
from tests.docs.page import ROOT
from tests.http.client import Answer, Client
from tests.http.in_process import InProcess, application
from tests.http.server import Server
from tests.http.test_roles import ADMIN, USER


def log_in(client: Client, email: object, password: object, key: str = "email") -> Answer:
    return client.send_json("POST", "/auth/local", {key: email, "password": password})


def token_of(client: Client, email: str, password: str) -> str:
    answer = log_in(client, email, password)
    assert answer.status == 200, answer.body
    token: str = answer.json["token"]
    return token


def add(admin: Client, name: str, password: str = "secret", **more: object) -> None:
    value = {"username": name, "password": password, **more}
    assert admin.send_json("POST", "/admin/subscribers", value).status == 201


@pytest.fixture(scope="module")
def user_token(server: Server) -> str:
    return token_of(server.client(), "user", "password")


@pytest.fixture(scope="module")
def admin_token(server: Server) -> str:
    return token_of(server.client(), "admin", "adminpassword")


def test_a_login_answers_as_the_document_shows(anyone: Client) -> None:
    answer = log_in(anyone, "user", "password")
    assert answer.status == 200
    assert answer.json == {
        "success": True,
        "message": "login success.",
        "token": answer.json["token"],
    }
    assert jwt.get_unverified_header(answer.json["token"])["alg"] == "HS256"


@pytest.mark.parametrize("key", ["email", "username", "identifier"])
def test_the_name_may_be_given_by_any_of_three_words(anyone: Client, key: str) -> None:
    assert log_in(anyone, "user", "password", key).status == 200


@pytest.mark.parametrize(("method", "path"), USER)
@pytest.mark.parametrize("form", ["Bearer {}", "{}"])
def test_a_users_token_opens_what_a_user_may(
    anyone: Client, user_token: str, form: str, method: str, path: str
) -> None:
    header = form.format(user_token)
    answer = anyone.ask(method, path, consumerGroup="roles", authorization=header)
    assert answer.status in (200, 400, 404)


@pytest.mark.parametrize(("method", "path"), ADMIN)
def test_a_token_opens_no_more_than_its_users_role(
    anyone: Client, user_token: str, admin_token: str, method: str, path: str
) -> None:
    for token, statuses in ((user_token, (403,)), (admin_token, (200, 400, 404))):
        answer = anyone.ask(method, path, consumerGroup="roles", authorization=token)
        assert answer.status in statuses


def test_the_native_api_takes_tokens_too(
    anyone: Client, user_token: str, admin_token: str, group: str
) -> None:
    refused = anyone.send_json("POST", "/v1/queues", {"name": group}, authorization=user_token)
    assert (refused.status, refused.json["code"]) == (403, "forbidden")
    bearer = f"Bearer {admin_token}"
    made = anyone.send_json("POST", "/v1/queues", {"name": group}, authorization=bearer)
    assert made.status == 201


def test_a_wrong_password_and_an_unknown_name_are_answered_alike(
    anyone: Client, group: str
) -> None:
    for name in ("user", f"nobody-{group}"):
        answer = log_in(anyone, name, "wrong")
        assert answer.status == 401
        assert "Bearer" in answer.headers["www-authenticate"]
        assert answer.json == {
            "success": False,
            "message": "name or password are wrong",
            "code": "unauthorized",
        }


def test_guessing_by_login_is_throttled_as_guessing_by_basic_is(
    server: Server, admin: Client, anyone: Client, group: str
) -> None:
    add(admin, group)
    # Given guesses by both ways, of one name
    for number in range(FREE_FAILURES + 1):
        if number % 2:
            assert log_in(anyone, group, f"wrong {number}").status == 401
        else:
            assert server.client(group, f"wrong {number}").push(group).status == 401
    # Then the next must wait, by either way, even a right one
    for answer in (log_in(anyone, group, "secret"), server.client(group, "secret").push(group)):
        assert answer.status == 429
        assert int(answer.headers["retry-after"]) >= 1


def test_a_removed_users_token_opens_nothing_any_more(
    admin: Client, anyone: Client, group: str
) -> None:
    add(admin, group)
    token = token_of(anyone, group, "secret")
    assert anyone.push(group, authorization=token).status == 200
    assert admin.ask("DELETE", f"/admin/subscribers/{group}").status == 204
    assert anyone.push(group, authorization=token).status == 401
    # Nor when somebody gets that name again
    add(admin, group)
    assert anyone.push(group, authorization=token).status == 401


def test_a_changed_password_makes_tokens_void_at_once(
    server: Server, admin: Client, anyone: Client, group: str
) -> None:
    add(admin, group, "old")
    token = token_of(anyone, group, "old")
    assert anyone.push(group, authorization=token).status == 200
    assert server.client(group, "old").push(group).status == 200
    # When it is changed
    change = {"username": group, "password": "old", "new_password": "new"}
    answer = anyone.send_json("POST", "/auth/password", change)
    assert answer.json == {"success": True, "message": "password changed."}
    # Then neither the token nor the old password counts
    assert anyone.push(group, authorization=token).status == 401
    assert server.client(group, "old").push(group).status == 401
    assert log_in(anyone, group, "old").status == 401
    # But the new one does
    assert anyone.push(group, authorization=token_of(anyone, group, "new")).status == 200


def test_a_password_is_changed_by_who_knows_it(admin: Client, anyone: Client, group: str) -> None:
    add(admin, group)
    change = {"username": group, "password": "wrong", "new_password": "new"}
    assert anyone.send_json("POST", "/auth/password", change).status == 401
    assert log_in(anyone, group, "secret").status == 200


def test_the_password_of_a_user_of_the_settings_is_changed_there(anyone: Client) -> None:
    change = {"username": "user", "password": "password", "new_password": "new"}
    answer = anyone.send_json("POST", "/auth/password", change)
    assert (answer.status, answer.json["code"]) == (400, "invalid_argument")
    assert "settings" in answer.json["message"]


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        "a",
        1,
        {"email": "a"},
        {"password": "a"},
        {"email": "a", "password": ""},
        {"email": "a", "password": 1},
        {"email": 1, "password": "a"},
        {"email": "a", "username": "a", "password": "a"},
        {"email": "a", "password": "x" * 1001},
        {"email": "a", "password": "a", "more": 1},
    ],
)
def test_a_malformed_login_is_refused(anyone: Client, value: object) -> None:
    answer = anyone.send_json("POST", "/auth/local", value)
    assert (answer.status, answer.json["success"]) == (400, False)


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"\xff", b"[" * 60_000, b'{"email":"a","password":"\\ud800 "}'],
)
def test_what_is_no_json_is_refused(anyone: Client, body: bytes) -> None:
    answer = anyone.ask("POST", "/auth/local", body)
    assert (answer.status, answer.json["success"]) == (400, False)


def test_a_password_is_in_no_answer_and_no_log(server: Server, anyone: Client) -> None:
    secret = "d8s7f6g5h4"
    for value in ({"email": "a", "password": secret, secret: 1}, {"email": secret, "password": 1}):
        anyone.send_json("POST", "/auth/local", value)
    assert secret.encode() not in log_in(anyone, "user", secret).body
    token = token_of(anyone, "user", "password")
    anyone.push("secrets", authorization=f"Bearer {token}")
    assert secret not in server.log_text()
    assert token not in server.log_text()


def test_an_unknown_path_of_the_api_answers_as_the_api_does(anyone: Client, user: Client) -> None:
    answer = anyone.ask("GET", "/api/nothing")
    assert (answer.status, answer.json["success"]) == (401, False)
    answer = user.ask("GET", "/auth/local")
    assert (answer.status, answer.headers["allow"]) == (405, "POST")
    assert answer.json["success"] is False


async def test_tokens_and_users_outlive_the_server_and_a_changed_setting_ends_them(
    tmp_path: Path,
) -> None:
    async def push(app: InProcess, token: str) -> int:
        return (
            await app.ask("POST", "/queue/push", b"a", consumerGroup="a", authorization=token)
        ).status

    async with penstock.open("memory:") as broker:
        # Given a token of each kind of user
        async with application(broker, data=str(tmp_path)) as app:
            value = {"username": "alice", "password": "secret"}
            body = json.dumps(value).encode()
            assert (await app.ask("POST", "/admin/subscribers", body, name="admin")).status == 201
            tokens = []
            for name, password in (("user", "password"), ("alice", "secret")):
                body = json.dumps({"email": name, "password": password}).encode()
                tokens.append((await app.ask("POST", "/auth/local", body)).json["token"])
        # Then both count with the next server on that directory
        async with application(broker, data=str(tmp_path)) as app:
            assert [await push(app, token) for token in tokens] == [200, 200]
        # When the setting has another password, then that user's token is void, and only that
        async with application(broker, data=str(tmp_path), user_password="another") as app:
            assert [await push(app, token) for token in tokens] == [401, 200]
        # And another directory knows neither
        async with application(broker, data=str(tmp_path / "another")) as app:
            assert [await push(app, token) for token in tokens] == [401, 401]


@pytest.mark.parametrize("page", ["docs/auth.md", "docs/topics-api.md"])
def test_the_examples_of_the_pages_do_what_they_say(server: Server, page: str) -> None:
    token = ""
    for command in commands_in(page):
        given = re.sub("<token>|eyJhbGciOi[.]{3}", token, command)
        given = given.replace("http://127.0.0.1:8080", server.url)
        done = subprocess.run(
            ["bash", "-c", given.replace("curl ", "curl -sS --fail-with-body ", 1)],
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout!r} {done.stderr!r}"
        answer = json.loads(done.stdout)
        if "/api/" in command or "/auth/" in command:
            assert answer["success"] is True
        token = answer.get("token", token)


def commands_in(page: str) -> list[str]:
    """All that begins with curl in blocks of shell, over as many lines as it has."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    found = [line for line in lines if line.startswith("curl ")]
    assert found
    return found
