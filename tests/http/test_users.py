"""The file of the subscribers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

import penstock
from penstock.errors import CorruptLog, InvalidArgument, NewerFormat, StorageError
from penstock.http.auth import Role
from penstock.http.users import Users
from penstock.storage.wal.files import DiskFiles
from penstock.storage.wal.offline.repair import plan_repair


async def test_one_of_two_who_take_a_name_at_once_gets_it(tmp_path: Path) -> None:
    users = Users({}, tmp_path / "users.json")
    add = [users.add("alice", password, Role.USER, 0) for password in ("a", "b")]
    results = await asyncio.gather(*add, return_exceptions=True)
    assert sum(isinstance(result, InvalidArgument) for result in results) == 1
    assert list(users.subscribers()) == ["alice"]


async def test_what_is_added_at_once_is_all_in_the_file(tmp_path: Path) -> None:
    users = Users({}, tmp_path / "users.json")
    names = [f"user-{number}" for number in range(5)]
    await asyncio.gather(*[users.add(name, "secret", Role.ADMIN, 3) for name in names])
    again = Users({}, tmp_path / "users.json").subscribers()
    assert list(again) == names
    assert {(user.role, user.requests_per_second) for user in again.values()} == {(Role.ADMIN, 3)}


async def test_a_change_that_cannot_be_stored_has_not_happened(tmp_path: Path) -> None:
    path = tmp_path / "users.json"
    users = Users({}, path)
    await users.add("alice", "secret", Role.USER, 0)
    (tmp_path / "users.json.new").mkdir()
    with pytest.raises(StorageError):
        await users.add("bob", "secret", Role.USER, 0)
    with pytest.raises(StorageError):
        await users.remove("alice")
    assert list(users.subscribers()) == ["alice"]
    assert list(Users({}, path).subscribers()) == ["alice"]


@pytest.mark.parametrize("content", [b"", b"{", b'{"version": 1}', b"\xff", b'{"users": []}'])
def test_a_damaged_file_is_not_taken_for_an_empty_one(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "users.json"
    path.write_bytes(content)
    with pytest.raises(CorruptLog, match=r"users\.json is damaged"):
        Users({}, path)


def test_a_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "users.json"
    path.write_bytes(b'{"version": 2, "users": []}')
    with pytest.raises(NewerFormat):
        Users({}, path)


async def test_a_repair_of_the_log_leaves_the_file_where_it_is(tmp_path: Path) -> None:
    users = Users({}, tmp_path / "users.json")
    await users.add("alice", "secret", Role.USER, 0)
    async with penstock.open(tmp_path) as broker:
        await broker.create_queue("orders")
    files = DiskFiles(tmp_path)
    [checkpoint] = [name for name in files.names() if name.endswith(".ckpt")]
    (tmp_path / checkpoint).write_bytes(b"damaged")
    plan = plan_repair(files, rng=Random(1))
    assert plan.is_needed
    assert plan.aside
    assert "users.json" not in plan.aside
