"""``penstock doctor``."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import penstock as package
from penstock.cli import checks
from penstock.cli.checks import Verdict
from penstock.client import Client, Component, Health
from penstock.errors import StoreUnavailable
from tests.cli.shell import Shell

NOW = datetime(2030, 1, 31, 12, tzinfo=UTC)
GIB = 1024**3


def health(**changes: object) -> Health:
    fields: dict[str, object] = {
        "status": "UP",
        "components": {"store": Component(status="UP", durability="fsync")},
        "version": package.__version__,
        "date": NOW,
    }
    return Health(**(fields | changes))  # type: ignore[arg-type]


def test_a_sound_server_is_found_so(penstock: Shell, tmp_path: Path) -> None:
    (tmp_path / "LOCK").write_text(str(os.getpid()))

    found = {one["check"]: one for one in penstock.json("doctor", "--data", str(tmp_path))}

    assert list(found) == [
        "server",
        "version",
        "store",
        "clock",
        "credentials",
        "data",
        "disk",
        "files",
    ]
    assert found["version"]["text"] == f"both sides are {package.__version__}"
    assert found["credentials"]["verdict"] == "warning"
    assert "PENSTOCK_ADMIN_PASSWORD" in found["credentials"]["text"]
    assert f"process {os.getpid()} has it open" in found["data"]["text"]
    assert f"of the server, process {os.getpid()}" in found["files"]["text"]


def test_people_get_a_line_for_each_check(penstock: Shell, tmp_path: Path) -> None:
    shown = penstock.ok("doctor", "--data", str(tmp_path)).splitlines()

    assert any(line.startswith("good     server       http://") for line in shown)
    assert any("nobody has it open" in line for line in shown)


def test_a_server_that_is_not_there_exits_with_4_and_says_what_to_do() -> None:
    nowhere = Shell("http://127.0.0.1:1")

    result = nowhere("doctor", "--retries", "0")

    assert result.exit_code == 4
    assert "Start one with `penstock serve`" in result.stdout


def test_a_wrong_password_is_bad_and_exits_with_1(penstock: Shell) -> None:
    result = penstock("doctor", PENSTOCK_USER="stranger", PENSTOCK_PASSWORD="wrong")

    assert result.exit_code == 1
    assert "bad   credentials" in result.stdout
    assert "PENSTOCK_PASSWORD" in result.stdout


def test_a_store_that_is_away_is_no_matter_of_the_password(
    penstock: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stats(client: Client) -> None:
        raise StoreUnavailable("Redis is away: try again shortly")

    monkeypatch.setattr(Client, "stats", stats)

    result = penstock("doctor", "--json")

    assert result.exit_code == 1
    found = {one["check"]: one for one in json.loads(result.stdout)}
    assert found["credentials"] == {
        "check": "credentials",
        "verdict": "bad",
        "text": "cannot be checked: Redis is away: try again shortly",
    }


def test_a_name_of_ones_own_is_good(penstock: Shell) -> None:
    result = penstock("doctor", PENSTOCK_USER="user", PENSTOCK_PASSWORD="password")

    assert result.exit_code == 0
    assert "good  credentials  user: " in result.stdout


def test_a_missing_directory_is_bad(penstock: Shell, tmp_path: Path) -> None:
    result = penstock("doctor", "--data", str(tmp_path / "none"))

    assert result.exit_code == 1
    assert "name the server's with --data" in result.stdout


def test_data_in_memory_is_a_warning(penstock: Shell) -> None:
    assert "gone when the server ends" in penstock.ok("doctor", "--data", "memory:")


@pytest.mark.parametrize("version", [None, "9.9.9"])
def test_another_version_is_a_warning(version: str | None) -> None:
    found = checks.check_version(health(version=version))

    assert found.verdict is Verdict.WARNING
    assert package.__version__ in found.text


def test_a_component_that_is_down_is_bad_with_its_problem() -> None:
    part = Component(status="DOWN", problem="the disk failed")

    (found,) = checks.check_health(health(status="DOWN", components={"store": part}))

    assert (found.check, found.verdict) == ("store", Verdict.BAD)
    assert found.text == "the disk failed. See the server's log, then start it again"


def test_a_server_whose_redis_is_away_need_not_be_started_again() -> None:
    part = Component(status="DOWN", problem="Redis is away")

    found = checks.check_health(health(status="DOWN", components={"store": part, "redis": part}))

    assert [(one.check, one.verdict) for one in found] == [
        ("store", Verdict.BAD),
        ("redis", Verdict.BAD),
    ]
    assert {one.text for one in found} == {
        "Redis is away. The server goes on by itself once that is mended"
    }


@pytest.mark.parametrize("seconds", [-4, 0, 0.9, 5])
def test_a_clock_that_is_seconds_apart_is_good(seconds: float) -> None:
    found = checks.check_clock(health(), NOW + timedelta(seconds=seconds))

    assert found.verdict is Verdict.GOOD


@pytest.mark.parametrize(("seconds", "words"), [(90, "ahead of"), (-90, "behind")])
def test_a_clock_that_is_wrong_is_a_warning(seconds: float, words: str) -> None:
    found = checks.check_clock(health(), NOW + timedelta(seconds=seconds))

    assert found.verdict is Verdict.WARNING
    assert f"seconds {words} the server's" in found.text
    assert checks.check_clock(health(date=None), NOW).verdict is Verdict.WARNING


@pytest.mark.parametrize(
    ("total", "free", "verdict"),
    [
        (100 * GIB, 50 * GIB, Verdict.GOOD),
        (100 * GIB, 4 * GIB, Verdict.WARNING),
        (100 * GIB, GIB // 8, Verdict.BAD),
        (GIB, GIB // 8, Verdict.BAD),
    ],
)
def test_space_that_runs_out_is_told_before_it_has(total: int, free: int, verdict: Verdict) -> None:
    found = checks.check_space(Path("data"), (total, total - free, free))

    assert found.verdict is verdict
    assert ("lower retention" in found.text) is (verdict is not Verdict.GOOD)
