"""How commands get at the server, and how they end when they do not."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from penstock.cli.connection import Connection, is_loopback
from tests.cli.shell import Shell


def test_no_server_exits_with_4() -> None:
    result = Shell("http://127.0.0.1:1")("stats", "--once", "--retries", "0")

    assert result.exit_code == 4
    assert result.stderr == (
        "unreachable: no connection to http://127.0.0.1:1: connection refused. "
        "Start a server with `penstock serve`, or name one with --url\n"
    )
    assert result.stderr.count("\n") == 1


def test_a_wrong_password_exits_with_6(penstock: Shell) -> None:
    result = penstock("stats", "--once", PENSTOCK_USER="nobody", PENSTOCK_PASSWORD="x")

    assert (result.exit_code, result.stderr.partition(":")[0]) == (6, "unauthorized")


def test_a_role_that_is_not_enough_exits_with_6(penstock: Shell) -> None:
    result = penstock("queue", "create", "x", "--user", "user", "--password", "password")

    assert (result.exit_code, result.stderr.partition(":")[0]) == (6, "forbidden")


def test_an_option_counts_more_than_the_environment(penstock: Shell) -> None:
    options = ["--url", penstock.url, "--user", "user", "--password", "password"]
    environment = {"PENSTOCK_URL": "http://127.0.0.1:1", "PENSTOCK_USER": "stranger"}

    assert penstock("stats", "--once", *options, **environment).exit_code == 0


def test_nobody_is_asked_for_a_password_who_cannot_answer(penstock: Shell) -> None:
    result = penstock("stats", "--once", PENSTOCK_USER="user")

    assert result.exit_code == 2
    assert "set PENSTOCK_PASSWORD" in result.stderr


def test_a_password_without_a_name_is_wrong_usage(penstock: Shell) -> None:
    assert penstock("stats", "--once", PENSTOCK_PASSWORD="x").exit_code == 2


@pytest.mark.parametrize(
    "url", ["nonsense", "ftp://127.0.0.1", "http://a:b@127.0.0.1", "http://[::1", "http://h:99999"]
)
def test_a_url_that_is_none_is_refused(url: str) -> None:
    result = Shell(url)("stats", "--once", "--user", "a", "--password", "b")

    assert (result.exit_code, result.stderr.partition(":")[0]) == (2, "invalid_argument")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:8080", True),
        ("http://localhost", True),
        ("https://[::1]:8443/x", True),
        ("http://127.0.0.1.example.org", False),
        ("http://10.0.0.1", False),
        ("nonsense", False),
    ],
)
def test_the_passwords_of_the_documentation_go_to_this_machine_alone(
    url: str, expected: bool
) -> None:
    assert is_loopback(url) is expected
    assert ("password" in Connection(url=url).options()) is expected


def test_a_token_takes_the_place_of_a_name() -> None:
    options = Connection(token="abc", user="somebody", password="secret").options()

    assert options["token"] == "abc"
    assert "username" not in options


def test_a_token_is_printed_and_lets_its_user_in(penstock: Shell) -> None:
    printed = penstock.ok("token", "--user", "user", "--password", "password").strip()

    assert penstock("stats", "--once", PENSTOCK_TOKEN=printed).exit_code == 0
    assert penstock("queue", "create", "x", PENSTOCK_TOKEN=printed).exit_code == 6
    assert penstock("stats", "--once", PENSTOCK_TOKEN=f"{printed}x").exit_code == 6
    assert penstock.json("token")["token"].count(".") == 2


def test_there_is_no_token_for_a_wrong_password_or_nobody(penstock: Shell) -> None:
    wrong = penstock("token", "--user", "user", "--password", "wrong")
    nobody = penstock("token", "--url", "http://192.0.2.1")

    assert wrong.exit_code == 6
    assert wrong.stderr.startswith("unauthorized: name or password are wrong. Set PENSTOCK_USER")
    assert nobody.exit_code == 2
    assert penstock("token", PENSTOCK_TOKEN="a.b.c").exit_code == 2


def test_certificates_to_trust_come_from_a_file(penstock: Shell, tmp_path: Path) -> None:
    missing = penstock("stats", "--ca", str(tmp_path / "none"))
    assert missing.exit_code == 2

    bundle = ssl.get_default_verify_paths().cafile
    if bundle is not None:
        assert Connection(ca=bundle).options()["tls"] is not None
