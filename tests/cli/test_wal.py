"""``penstock wal``, on real directories."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from penstock.broker import Broker
from penstock.cli import app
from tests.faults.damage import flip, record_offsets
from tests.faults.drain import drain
from tests.faults.store import make_history, open_store
from tests.faults.test_newer_version import make_segment_newer
from tests.faults.test_second_process import owner_of

runner = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"})


def wal(*arguments: str | Path, answer: str | None = None) -> Result:
    return runner.invoke(app, ["wal", *map(str, arguments)], input=answer)


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A directory with every kind of file, whose process was killed."""
    await make_history(tmp_path / "data", closed=False)
    return tmp_path / "data"


def tail(path: Path) -> Path:
    [checkpoint] = path.glob("*.ckpt")
    return checkpoint.with_suffix(".log")


def lose_a_message(path: Path) -> tuple[str, int]:
    """In the tail. Where the damage is."""
    offset = next(offset for offset, kind in record_offsets(tail(path))[4:] if kind == 30)
    flip(tail(path), offset + 50)
    return tail(path).name, offset


def put_aside(path: Path) -> list[Path]:
    return list(path.glob("damaged-*"))


def contents(path: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in path.iterdir() if p.is_file()}


# inspect


def test_inspect_shows_every_file_and_every_queue(path: Path) -> None:
    result = wal("inspect", path)
    assert result.exit_code == 0
    for name in contents(path).keys() - {"LOCK"}:
        assert name in result.output
    for word in ("Published", "Acked", "checkpoint", "index", "pack"):
        assert word in result.output
    assert "orders-dlq" in result.output


def test_inspect_as_json_is_complete(path: Path) -> None:
    found = json.loads(wal("inspect", path, "--json").output)
    queues = {queue["name"]: queue for queue in found["queues"]}
    assert queues["orders"]["first"] == 0
    assert queues["orders"]["next"] == 90
    assert queues["orders"]["messages"] == 90
    assert queues["orders"]["subscriptions"].keys() == {"default", "even", "billing", "mail"}
    files = {file["name"]: file for file in found["files"]}
    assert files[tail(path).name]["records"]["Published"] == 15
    assert {file["condition"] for file in files.values()} == {"good", "not needed"}
    assert found["refusal"] is None


def test_inspect_does_not_say_that_users_and_their_key_are_not_needed(path: Path) -> None:
    for name in ("users.json", "token.key"):
        (path / name).write_text("{}")
    found = json.loads(wal("inspect", path, "--json").output)
    conditions = {file["name"]: file["condition"] for file in found["files"]}
    assert {conditions[name] for name in ("users.json", "token.key")} == {"not of the log"}


def test_inspect_can_show_every_record(path: Path) -> None:
    lines = wal("inspect", path, "--records", "--json").output.splitlines()
    records = [json.loads(line) for line in lines]
    published = [r for r in records if r["kind"] == "Published"]
    assert published[0]["event"]["first"] == 0
    assert published[0].keys() == {"file", "offset", "length", "kind", "event"}
    assert len(wal("inspect", path, "--records").output.splitlines()) == len(lines)


def test_inspect_of_a_damaged_directory_says_where_and_what_a_start_would_say(path: Path) -> None:
    name, offset = lose_a_message(path)
    result = wal("inspect", path)
    assert result.exit_code == 0
    assert f"damage: {name} at offset {offset}" in result.output
    assert "A start would refuse" in result.output


async def test_inspect_and_verify_work_on_a_store_that_is_open(tmp_path: Path) -> None:
    # Given a store that is open
    broker = Broker(await open_store(tmp_path / "data"))
    await broker.create_queue("orders")
    await broker.publish("orders", [b"a", b"b"])
    before = contents(tmp_path / "data")
    # Then one can look at it, and nothing changes
    found = json.loads(wal("inspect", tmp_path / "data", "--json").output)
    assert found["queues"][0]["messages"] == 2
    assert wal("verify", tmp_path / "data").exit_code == 0
    assert contents(tmp_path / "data") == before
    await broker.close()


def test_a_directory_with_logs_of_others_is_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text("a line of somebody's log")

    result = wal("verify", tmp_path)

    assert result.exit_code == 2
    assert "holds no log" in result.output


def test_a_directory_without_a_log_is_wrong_usage(tmp_path: Path) -> None:
    for command in ("inspect", "verify", "repair"):
        result = wal(command, tmp_path)
        assert result.exit_code == 2
        assert "holds no log" in result.output
        assert wal(command, tmp_path / "nowhere").exit_code == 2
    assert list(tmp_path.iterdir()) == []


# verify


def test_verify_of_a_good_directory_exits_with_0(path: Path) -> None:
    before = contents(path)
    result = wal("verify", path)
    assert result.exit_code == 0
    assert "good:" in result.output
    assert contents(path) == before


def test_verify_of_a_damaged_directory_exits_with_1_and_says_where(path: Path) -> None:
    name, offset = lose_a_message(path)
    result = wal("verify", path)
    assert result.exit_code == 1
    assert f"damage: {name} at offset {offset}" in result.output
    assert "penstock wal repair" in result.output


def test_verify_as_json_lists_the_damage(path: Path) -> None:
    assert json.loads(wal("verify", path, "--json").output)["messages"]["orders"] == 90
    name, offset = lose_a_message(path)
    result = wal("verify", path, "--json")
    assert result.exit_code == 1
    [damage] = json.loads(result.output)["damages"]
    assert (damage["file"], damage["offset"]) == (name, offset)


def test_a_newer_directory_is_refused_with_5(path: Path) -> None:
    make_segment_newer(tail(path))
    for command in ("verify", "repair", "inspect"):
        result = wal(command, path)
        assert result.exit_code == 5
        assert "newer_format" in result.output
        assert "upgrade Penstock" in result.output


# repair


def test_there_is_nothing_to_repair_in_a_good_directory(path: Path) -> None:
    before = contents(path)
    result = wal("repair", path)
    assert result.exit_code == 0
    assert "nothing to repair" in result.output
    assert contents(path) == before


def test_a_dry_run_says_what_is_lost_and_changes_nothing(path: Path) -> None:
    lose_a_message(path)
    before = contents(path)
    result = wal("repair", path, "--dry-run")
    assert result.exit_code == 1
    assert "lost: 2 of queue orders, at index" in result.output
    assert "will be delivered again" in result.output
    assert contents(path) == before


def test_a_repair_asks_first_and_no_is_no(path: Path) -> None:
    lose_a_message(path)
    before = contents(path)
    result = wal("repair", path, answer="n\n")
    assert result.exit_code == 1
    assert "Repair it?" in result.output
    assert contents(path) == before


async def test_a_repair_makes_a_directory_that_opens(path: Path) -> None:
    # Given a damaged directory
    name, _ = lose_a_message(path)
    damaged = (path / name).read_bytes()
    # When it is repaired
    result = wal("repair", path, answer="y\n")
    assert result.exit_code == 0, result.output
    # Then the damaged file was moved aside
    [aside] = put_aside(path)
    assert str(aside) in result.output
    assert (aside / name).read_bytes() == damaged
    # and all is good
    assert wal("verify", path).exit_code == 0
    assert len((await drain(path)).readable["orders"]) == 88


def test_two_repairs_in_a_row_keep_what_each_put_aside(path: Path) -> None:
    lose_a_message(path)
    assert wal("repair", path, "--yes").exit_code == 0
    flip(sorted(path.glob("*.ckpt"))[-1], 100)
    assert wal("repair", path, "--yes").exit_code == 0
    assert len(put_aside(path)) == 2


def test_a_directory_in_use_is_not_repaired(tmp_path: Path) -> None:
    with owner_of(tmp_path / "data") as process:
        result = wal("repair", tmp_path / "data", "--yes")
    assert result.exit_code == 5
    assert "directory_locked" in result.output
    assert str(process.pid) in result.output
