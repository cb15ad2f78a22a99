"""Settings in a file, by our names and as LightQ's properties."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import InvalidArgument
from penstock.settings import Settings
from penstock.settings_file import load_settings_file
from tests.http.server import running
from tests.http.test_starting_and_stopping import refusal


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """As it was, afterwards."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


def loaded(path: Path, text: str) -> Settings:
    path.write_text(text, encoding="utf-8")
    load_settings_file(path)
    return Settings()


def test_a_server_does_as_lightqs_properties_say(tmp_path: Path, log: Path) -> None:
    # Given the properties that LightQ's document names, one of them as it is written there
    properties = tmp_path / "application.properties"
    properties.write_text(
        "# users\n"
        "security.user.username=alice\n"
        "security.user.password = ${SECURITY_USER_PASSWORD:wonderland}\n"
        "security.admin.password: hearts\n"
        "\n"
        "! limits\n"
        "lightq.message-allowed-to-fetch=2\n"
        "spring.application.name=lightq\n",
        encoding="utf-8",
    )
    with running("memory:", log, "--settings", str(properties)) as server:
        alice, admin = server.client("alice", "wonderland"), server.client("admin", "hearts")
        for _ in range(3):
            assert alice.push("orders").status == 200
        assert len(admin.view("orders").json) == 2
        assert server.client("user", "password").pop("orders").status == 401


def test_every_property_of_the_documents_is_a_setting(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path / "application.properties",
        """
        server.port=9000
        security.user.username=u
        security.user.password=p
        security.admin.username=a
        security.admin.password=q
        rate.limit.push-per-second=10
        rate.limit.pop-per-second=20
        lightq.message-allowed-to-fetch=7
        lightq.persistence-duration-minutes=60
        lightq.visibility-timeout-seconds=5
        lightq.max-delivery-attempts=2
        lightq.dlq-ttl-minutes=3
        spring.data.redis.host=r
        spring.data.redis.port=6380
        spring.data.mongodb.uri=mongodb://m:27017
        spring.data.mongodb.database=lightq-db
        """,
    )
    assert (settings.port, settings.view_limit, settings.retention_minutes) == (9000, 7, 60)
    assert (settings.user_username, settings.user_password) == ("u", "p")
    assert (settings.admin_username, settings.admin_password) == ("a", "q")
    assert (settings.push_per_second, settings.pop_per_second) == (10, 20)
    assert (settings.visibility_timeout_seconds, settings.max_deliveries) == (5, 2)
    assert settings.dead_letter_minutes == 3
    assert settings.store == "redis://r:6380/0"
    assert settings.archive == "mongodb://m:27017/lightq-db"


def test_ours_are_written_as_in_an_environment(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path / "penstock.env",
        "export PENSTOCK_PORT=9001\nPENSTOCK_USER_PASSWORD='${not one} # of those'\n",
    )
    assert (settings.port, settings.user_password) == (9001, "${not one} # of those")


def test_the_environment_goes_before_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_PORT", "1")
    monkeypatch.setenv("PENSTOCK_VIEW_LIMIT", "")
    settings = loaded(tmp_path / "a", "PENSTOCK_PORT=2\nPENSTOCK_VIEW_LIMIT=3\n")
    assert (settings.port, settings.view_limit) == (1, 3)


@pytest.mark.parametrize(
    ("text", "line"), [("PORT\n", 1), ("a=b\n\nmy password\n", 3), ("=x\n", 1)]
)
def test_a_line_that_says_nothing_is_named_and_not_shown(
    tmp_path: Path, text: str, line: int
) -> None:
    with pytest.raises(InvalidArgument, match=f"line {line} ") as refused:
        loaded(tmp_path / "a", text)
    assert "password" not in str(refused.value)


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        (
            "PENSTOCK_LOG_LEVL=debug",
            "there is no setting PENSTOCK_LOG_LEVL: did you mean PENSTOCK_LOG_LEVEL",
        ),
        ("penstock.max-delivery=3", "did you mean PENSTOCK_MAX_DELIVERIES"),
        ("PENSTOCK_FLAVOUR=x", "there is no setting PENSTOCK_FLAVOUR: remove it"),
        ("port=9000", "PORT has no effect: write PENSTOCK_PORT"),
    ],
)
def test_a_setting_that_there_is_not_is_named_with_its_line(
    tmp_path: Path, line: str, advice: str
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        loaded(tmp_path / "a", f"PENSTOCK_URL=http://a\n{line}\n")
    assert "line 2 of" in str(refused.value)
    assert advice in str(refused.value)


def test_what_lightqs_file_says_to_others_has_no_effect_and_is_told(
    tmp_path: Path, log: Path
) -> None:
    file = tmp_path / "application.properties"
    file.write_text("spring.application.name=lightq\nlightq.dlq-suffix=-dlq\nserver.port=0\n")
    with running("memory:", log, "--settings", str(file)) as server:
        told = [one for one in server.log_lines() if one["event"] == "a variable has no effect"]
    assert [one["variable"] for one in told] == ["spring.application.name"]


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    code, text = refusal("--settings", str(tmp_path / "none"))
    assert (code, "cannot be read" in text) == (2, True)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    code, text = refusal("--settings", str(tmp_path / "binary"))
    assert (code, "cannot be read" in text) == (2, True)
