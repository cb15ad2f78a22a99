"""Variables with our prefix that are no settings: misspelt, of others, and of Kubernetes."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from penstock.errors import InvalidArgument
from penstock.settings import VARIABLES, Settings
from penstock.variables import check_variables, unused_variables
from tests.http.server import running
from tests.http.test_starting_and_stopping import refusal

# What each pod gets where there are Services called penstock and penstock-redis.
LINKS = {
    "PENSTOCK_PORT": "tcp://10.0.0.1:8080",
    "PENSTOCK_PORT_8080_TCP": "tcp://10.0.0.1:8080",
    "PENSTOCK_PORT_8080_TCP_ADDR": "10.0.0.1",
    "PENSTOCK_PORT_8080_TCP_PORT": "8080",
    "PENSTOCK_PORT_8080_TCP_PROTO": "tcp",
    "PENSTOCK_SERVICE_HOST": "10.0.0.1",
    "PENSTOCK_SERVICE_PORT": "8080",
    "PENSTOCK_SERVICE_PORT_HTTP": "8080",
    "PENSTOCK_REDIS_PORT": "tcp://10.0.0.2:6379",
    "PENSTOCK_REDIS_PORT_6379_TCP_ADDR": "10.0.0.2",
    "PENSTOCK_REDIS_SERVICE_HOST": "10.0.0.2",
}


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("PENSTOCK_LOG_LEVL", "PENSTOCK_LOG_LEVEL"),
        ("penstock_log_levl", "PENSTOCK_LOG_LEVEL"),
        ("PENSTOCK_USER_PASWORD", "PENSTOCK_USER_PASSWORD"),
        ("PENSTOCK_RETENTION", "PENSTOCK_RETENTION_MINUTES"),
        ("PENSTOCK_DATA_DIR", "PENSTOCK_DATA"),
        ("PENSTOCK_PORTS", "PENSTOCK_PORT"),
    ],
)
def test_a_misspelt_variable_is_refused_with_the_one_that_was_meant(wrong: str, right: str) -> None:
    with pytest.raises(InvalidArgument, match=f"{wrong}: did you mean {right}"):
        check_variables({wrong: "x"}, VARIABLES)


def test_a_server_does_not_start_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_SYNK", "never")
    code, text = refusal("--port", "0")
    assert code == 2
    assert "invalid_argument: there is no setting PENSTOCK_SYNK" in text
    assert "PENSTOCK_SYNC" in text


@pytest.mark.parametrize(
    "name",
    [
        *("PENSTOCK_URL", "PENSTOCK_USER", "PENSTOCK_PASSWORD", "PENSTOCK_TOKEN", "PENSTOCK_CA"),
        *("PENSTOCK_QUEUE", "PENSTOCK_LAKE", "PENSTOCK_WEBHOOK_SECRET"),
    ],
)
def test_those_of_a_client_are_no_concern_of_the_server(name: str) -> None:
    check_variables({name: "x"}, VARIABLES)
    assert unused_variables({name: "x"}, VARIABLES) == {}


def test_one_that_resembles_no_setting_may_be_anybodys_and_is_told() -> None:
    check_variables({"PENSTOCK_IMAGE_TAG": "1"}, VARIABLES)
    assert list(unused_variables({"PENSTOCK_IMAGE_TAG": "1"}, VARIABLES)) == ["PENSTOCK_IMAGE_TAG"]


def test_settings_and_empty_variables_are_neither_refused_nor_told() -> None:
    fine = dict.fromkeys(VARIABLES, "1") | {"PENSTOCK_LOG_LEVL": "", "OTHER": "x"}
    check_variables(fine, VARIABLES)
    assert unused_variables(fine, VARIABLES) == {}


def test_the_variables_of_a_kubernetes_service_are_none_of_ours(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: Path
) -> None:
    check_variables(LINKS, VARIABLES)
    assert list(unused_variables(LINKS, VARIABLES)) == ["PENSTOCK_PORT"]
    # Given what Kubernetes says, the port is that of other names, or the default
    for name, value in LINKS.items():
        monkeypatch.setenv(name, value)
    assert Settings().port == 8080
    monkeypatch.setenv("SERVER_PORT", "9000")
    assert Settings().port == 9000
    # And a server starts, and says what it made of it
    with running("memory:", log) as server:
        assert server.client().ask("GET", "/livez").status == 200
        told = [one for one in server.log_lines() if one["event"] == "a variable has no effect"]
    assert [one["variable"] for one in told] == ["PENSTOCK_PORT"]
    assert "enableServiceLinks" in told[0]["because"]


def test_a_port_that_is_neither_is_refused_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_PORT", "http")
    with pytest.raises(ValidationError, match="valid integer"):
        Settings()
