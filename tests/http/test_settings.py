"""Settings, by our names and by LightQ's."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from pydantic import AliasChoices, ValidationError

from penstock.errors import InvalidArgument
from penstock.server import check_exposure, check_users
from penstock.settings import Settings
from tests.docs.page import table_in
from tests.http.server import running

LIGHTQ = {
    "SERVER_PORT": ("port", "9000", 9000),
    "SECURITY_USER_USERNAME": ("user_username", "u", "u"),
    "SECURITY_USER_PASSWORD": ("user_password", "p", "p"),
    "SECURITY_ADMIN_USERNAME": ("admin_username", "a", "a"),
    "SECURITY_ADMIN_PASSWORD": ("admin_password", "q", "q"),
    "RATE_LIMIT_PUSH_PER_SECOND": ("push_per_second", "10", 10),
    "RATE_LIMIT_POP_PER_SECOND": ("pop_per_second", "20", 20),
    "LIGHTQ_MESSAGE_ALLOWED_TO_FETCH": ("view_limit", "7", 7),
    "LIGHTQ_PERSISTENCE_DURATION_MINUTES": ("retention_minutes", "60", 60),
    "LIGHTQ_VISIBILITY_TIMEOUT_SECONDS": ("visibility_timeout_seconds", "5", 5),
    "LIGHTQ_MAX_DELIVERY_ATTEMPTS": ("max_deliveries", "2", 2),
    "LIGHTQ_DLQ_TTL_MINUTES": ("dead_letter_minutes", "3", 3),
}

REDIS = [f"SPRING_DATA_REDIS_{part}" for part in ("HOST", "PORT", "PASSWORD")]


def test_the_defaults_are_lightqs_but_for_the_rate_limits() -> None:
    settings = Settings()
    assert (settings.host, settings.port) == ("127.0.0.1", 8080)
    assert (settings.user_username, settings.user_password) == ("user", "password")
    assert (settings.admin_username, settings.admin_password) == ("admin", "adminpassword")
    assert (settings.push_per_second, settings.pop_per_second) == (0, 0)
    assert settings.view_limit == 50
    assert settings.retention_minutes == 1440
    assert settings.visibility_timeout_seconds == 30
    assert settings.max_deliveries == 5
    assert settings.dead_letter_minutes is None


@pytest.mark.parametrize("variable", LIGHTQ)
def test_lightqs_variables_are_understood(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, text, value = LIGHTQ[variable]
    monkeypatch.setenv(variable, text)
    assert getattr(Settings(), name) == value
    # Ours goes first.
    monkeypatch.setenv(f"PENSTOCK_{name.upper()}", "77")
    assert str(getattr(Settings(), name)).removesuffix(".0") == "77"


@pytest.mark.parametrize(
    ("variable", "name", "value"),
    [
        ("NO_OF_MESSAGE_ALLOWED_TO_FETCH", "view_limit", 7),
        ("PERSISTENCE_DURATION_MINUTES", "retention_minutes", 7),
    ],
)
def test_the_variables_of_simple_queue_service_are_understood(
    variable: str, name: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, str(value))
    assert getattr(Settings(), name) == value


@pytest.mark.parametrize("variable", [*LIGHTQ, "PENSTOCK_STORE", *REDIS])
def test_an_empty_variable_is_as_if_it_were_not_there(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Settings()
    monkeypatch.setenv(variable, "")
    assert Settings() == plain


@pytest.mark.parametrize(
    ("host", "port", "password", "url"),
    [
        ("redis.example", "", "", "redis://redis.example:6379/0"),
        ("", "6380", "", "redis://localhost:6380/0"),
        ("", "", "a/b@c:d", "redis://:a%2Fb%40c%3Ad@localhost:6379/0"),
        ("::1", "6380", "x", "redis://:x@[::1]:6380/0"),
    ],
)
@pytest.mark.parametrize("prefix", ["SPRING_DATA_REDIS", "SPRING_REDIS"])
def test_lightqs_redis_is_the_store(
    host: str, port: str, password: str, url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part, value in (("HOST", host), ("PORT", port), ("PASSWORD", password)):
        monkeypatch.setenv(f"{prefix}_{part}", value)
    assert (Settings().store, Settings().store_url, Settings().archive) == (url, url, None)


@pytest.mark.parametrize(
    ("address", "database", "url"),
    [
        ("mongodb://m:27017", "", "mongodb://m:27017"),
        ("mongodb://m:27017/own?w=1", "", "mongodb://m:27017/own?w=1"),
        ("mongodb://m:27017", "lightq-db", "mongodb://m:27017/lightq-db"),
        ("mongodb://m,n/own?w=1", "db", "mongodb://m,n/db?w=1"),
        # Who logs in is known to the database that is asked without a name for it
        ("mongodb://u:p@m", "db", "mongodb://u:p@m/db?authSource=admin"),
        ("mongodb://u:p@m/own", "db", "mongodb://u:p@m/db?authSource=own"),
        ("mongodb://u:p@m/?authSource=x", "db", "mongodb://u:p@m/db?authSource=x"),
        ("mongodb+srv://u:p@m?w=1", "db", "mongodb+srv://u:p@m/db?w=1&authSource=admin"),
    ],
)
def test_lightqs_mongodb_is_the_archive_of_its_redis(
    address: str, database: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MONGO_URI", address)
    monkeypatch.setenv("MONGO_DB", database)
    # Messages in a directory have none
    assert (Settings().store, Settings().archive) == (None, None)
    monkeypatch.setenv("SPRING_DATA_REDIS_HOST", "r")
    assert Settings().archive == url


def test_ours_and_the_command_line_go_before_lightqs_stores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPRING_DATA_REDIS_HOST", "theirs")
    monkeypatch.setenv("MONGO_URI", "mongodb://theirs")
    # A directory that was asked for now
    assert (Settings(data="./here").store, Settings(data="./here").archive) == (None, None)
    # One that is always set, in an image for instance, is no such wish
    monkeypatch.setenv("PENSTOCK_DATA", "/data")
    assert Settings().store == "redis://theirs:6379/0"
    assert Settings(archive="mongodb://own").archive == "mongodb://own"
    monkeypatch.setenv("PENSTOCK_ARCHIVE", "mongodb://ours")
    assert Settings().archive == "mongodb://ours"
    monkeypatch.delenv("PENSTOCK_ARCHIVE")
    for settings in (
        Settings(store="redis://ours"),
        Settings.model_validate({"store": "redis://ours"}),
    ):
        assert (settings.store, settings.archive) == ("redis://ours", None)
    monkeypatch.setenv("PENSTOCK_STORE", "redis://ours")
    assert (Settings().store, Settings().archive) == ("redis://ours", None)


def test_every_setting_has_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, field in Settings.model_fields.items():
        value = "1" if field.annotation in (int, float, float | None) else str(field.default)
        monkeypatch.setenv(f"PENSTOCK_{name.upper()}", value)
    settings = Settings()
    assert (settings.port, settings.retention_minutes, settings.max_connections) == (1, 1, 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [("port", 70_000), ("view_limit", 0), ("max_deliveries", 0), ("retention_minutes", 0)],
)
def test_a_setting_out_of_range_is_refused(name: str, value: int) -> None:
    given: dict[str, int] = {name: value}
    with pytest.raises(ValidationError):
        Settings.model_validate(given)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", ""])
def test_default_passwords_are_for_loopback_only(host: str) -> None:
    own = {"user_password": "long one", "admin_password": "longer one"}
    with pytest.raises(InvalidArgument):
        check_exposure(Settings(host=host))
    for name, password in own.items():
        with pytest.raises(InvalidArgument):
            check_exposure(Settings.model_validate({"host": host, name: password}))
    check_exposure(Settings.model_validate({"host": host, **own}))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_on_loopback_default_passwords_are_fine(host: str) -> None:
    check_exposure(Settings(host=host))


def test_a_server_does_as_lightqs_variables_say(log: Path) -> None:
    environment = {
        "SECURITY_USER_USERNAME": "alice",
        "SECURITY_USER_PASSWORD": "wonderland",
        "SECURITY_ADMIN_USERNAME": "queen",
        "SECURITY_ADMIN_PASSWORD": "hearts",
        "LIGHTQ_MESSAGE_ALLOWED_TO_FETCH": "2",
        "LIGHTQ_VISIBILITY_TIMEOUT_SECONDS": "1",
        "LIGHTQ_MAX_DELIVERY_ATTEMPTS": "1",
        "LIGHTQ_DLQ_TTL_MINUTES": "60",
    }
    with running("memory:", log, environment=environment) as server:
        user, admin = server.client("alice", "wonderland"), server.client("queen", "hearts")
        assert server.client("user", "password").pop("orders").status == 401
        ids = [user.push("orders").json["id"] for _ in range(3)]
        # No more than two are shown
        assert len(admin.view("orders").json) == 2
        assert admin.view("orders", messageCount="3").status == 400
        # A reservation lasts a second
        user.pop("orders")
        [first, _] = admin.view("orders").json
        until = datetime.fromisoformat(first["reservedUntil"])
        assert until - datetime.fromisoformat(first["createdAt"]) < timedelta(seconds=3)
        # And with the first failure a message is a dead letter
        letters: list[dict[str, str]] = []
        deadline = time.monotonic() + 10
        while not letters and time.monotonic() < deadline:
            time.sleep(0.1)
            letters = admin.ask("GET", "/queue/dlq/view", consumerGroup="orders").json
        assert [letter["id"] for letter in letters] == ids[:1]


def test_the_page_has_every_setting_with_its_default_and_lightqs_name() -> None:
    stated = {row[0]: row[1:3] for row in table_in("docs/operations.md", "setting")}
    real = {}
    for name, field in Settings.model_fields.items():
        default = "none" if field.default is None else str(field.default)
        aliases = field.validation_alias
        assert isinstance(aliases, AliasChoices)
        others = [str(alias) for alias in aliases.choices[2:]]
        real[f"PENSTOCK_{name.upper()}"] = [default, others[0] if others else ""]
    assert stated == real


@pytest.mark.parametrize(
    "given",
    [
        {"admin_password": ""},
        {"user_password": " "},
        {"user_username": ""},
        {"admin_username": "a:b"},
        {"admin_username": "user"},
    ],
)
def test_users_that_anybody_or_nobody_can_log_in_as_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(InvalidArgument):
        check_users(Settings.model_validate(given))


def test_the_users_of_a_new_server_are_fine() -> None:
    check_users(Settings())
