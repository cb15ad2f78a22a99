"""Settings, by our names and by LightQ's."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from pydantic import AliasChoices, ValidationError

from penstock.errors import InvalidArgument
from penstock.server import check_exposure
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
