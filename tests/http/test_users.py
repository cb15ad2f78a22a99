"""The users, and the file that keeps them."""

from __future__ import annotations

import asyncio
import os
import re
from contextlib import suppress
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import bcrypt
import pytest

import penstock
from penstock.errors import (
    CorruptLog,
    InvalidDependency,
    InvalidName,
    NewerFormat,
    StorageError,
    UserExists,
    UserNotFound,
)
from penstock.http.auth.passwords import Passwords
from penstock.http.auth.tokens import open_tokens
from penstock.http.auth.user import Role
from penstock.http.auth.users import Users, open_users
from penstock.settings import Settings
from penstock.storage.local import LocalShared
from penstock.storage.wal.files import DiskFiles
from penstock.storage.wal.offline.repair import plan_repair
from tests.contract.clock import ManualClock


async def open_at(path: Path, **changes: str) -> Users:
    """As a server does that has this file."""
    settings = Settings.model_validate({"data": str(path.parent), **changes})
    return await open_users(settings, Passwords(), LocalShared(path.parent, ManualClock()))


def names(users: Users) -> list[str]:
    return [user.username for user in users.stored()]


async def test_of_a_password_only_what_bcrypt_makes_of_it_is_kept(tmp_path: Path) -> None:
    users = await open_at(tmp_path / "users.json")
    for name in ("alice", "bob"):
        await users.add(name, "open sesame", Role.USER)
    kept = (tmp_path / "users.json").read_bytes()
    assert b"sesame" not in kept
    # Of the two users of the settings, and of these two, each with a salt of its own
    hashes = set(re.findall(rb"\$2b\$\d\d\$[./A-Za-z0-9]{53}", kept))
    assert len(hashes) == 4
    assert sum(bcrypt.checkpw(b"open sesame", one) for one in hashes) == 2


async def test_one_of_two_who_take_a_name_at_once_gets_it(tmp_path: Path) -> None:
    users = await open_at(tmp_path / "users.json")
    add = [users.add("alice", password, Role.USER) for password in ("a", "b")]
    results = await asyncio.gather(*add, return_exceptions=True)
    assert sum(isinstance(result, UserExists) for result in results) == 1
    assert names(users) == ["alice"]


async def test_what_is_added_at_once_is_all_in_the_file(tmp_path: Path) -> None:
    users = await open_at(tmp_path / "users.json")
    wanted = [f"user-{number}" for number in range(5)]
    add = [users.add(name, "secret", Role.ADMIN, requests_per_second=3) for name in wanted]
    await asyncio.gather(*add)
    again = await open_at(tmp_path / "users.json")
    assert names(again) == wanted
    assert again.stored() == users.stored()


async def test_a_change_that_cannot_be_stored_has_not_happened(tmp_path: Path) -> None:
    path = tmp_path / "users.json"
    users = await open_at(path)
    alice = await users.add("alice", "secret", Role.USER)
    (tmp_path / "users.json.new").mkdir()
    with pytest.raises(StorageError):
        await users.add("bob", "secret", Role.USER)
    with pytest.raises(StorageError):
        await users.remove("alice")
    with pytest.raises(StorageError):
        await users.set_password(alice, "another")
    assert users.stored() == [alice]
    assert (await open_at(path)).stored() == [alice]


@pytest.mark.parametrize("call", ["open", "fsync", "replace"])
@pytest.mark.parametrize("number", [1, 2])
async def test_whichever_step_of_a_write_is_the_last_the_file_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    # Given a file, and a machine that stops at a step of the next write
    path = tmp_path / "users.json"
    users = await open_at(path)
    await users.add("alice", "secret", Role.USER)
    real = getattr(os, call)
    calls = count(1)

    def stop(*args: Any, **named: Any) -> Any:
        if next(calls) == number:
            raise OSError(5, "the machine stops")
        return real(*args, **named)

    with monkeypatch.context() as patch:
        patch.setattr(os, call, stop)
        with suppress(StorageError):
            await users.add("bob", "secret", Role.USER)
    # Then the next start finds the users before the change or after it
    assert names(await open_at(path)) in (["alice"], ["alice", "bob"])
    # And the next change goes through
    again = await open_at(path)
    await again.add("carol", "secret", Role.USER)
    assert names(await open_at(path)) in (["alice", "carol"], ["alice", "bob", "carol"])


async def test_a_draft_that_a_crash_left_behind_is_nothing(tmp_path: Path) -> None:
    # Given a crash between the draft and its renaming
    path = tmp_path / "users.json"
    alice = await (await open_at(path)).add("alice", "secret", Role.USER)
    (tmp_path / "users.json.new").write_bytes(b'{"version": 2, "use')
    # Then the change has not happened, and the next one does
    users = await open_at(path)
    assert users.stored() == [alice]
    await users.add("bob", "secret", Role.USER)
    assert names(await open_at(path)) == ["alice", "bob"]


async def test_an_email_is_one_however_it_is_written(tmp_path: Path) -> None:
    users = await open_at(tmp_path / "users.json")
    alice = await users.add("Alice@Example.com", "secret", Role.USER, name="Alice")
    assert alice.username == "alice@example.com"
    assert users.get("ALICE@example.COM") is alice
    with pytest.raises(UserExists):
        await users.add("alice@EXAMPLE.com", "secret", Role.USER)


@pytest.mark.parametrize(
    "name", ["", "a b", "@", "a@", "@b", "a@b@c", "a b@c", "a:b@c", "a@b\0", "x" * 51, "ä"]
)
async def test_a_user_has_a_name_or_an_email_address(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidName):
        await (await open_at(tmp_path / "users.json")).add(name, "secret", Role.USER)


async def test_a_new_password_comes_with_a_new_stamp_and_the_same_id(tmp_path: Path) -> None:
    users = await open_at(tmp_path / "users.json")
    alice = await users.add("alice", "old", Role.USER)
    changed = await users.set_password(alice, "new")
    assert changed.id == alice.id
    assert changed.stamp != alice.stamp
    assert (await open_at(tmp_path / "users.json")).stored() == [changed]
    # And who still has the old one in hand is too late
    with pytest.raises(UserNotFound):
        await users.set_password(alice, "newer")


async def test_who_waits_for_whom_is_kept_and_a_cycle_is_shown(tmp_path: Path) -> None:
    users = await open_at(tmp_path / "users.json")
    a, b, c = [await users.add(f"{name}@example.com", "x", Role.USER) for name in "abc"]
    await users.wait_for(c, [a])
    await users.wait_for(c, [b, a])
    await users.wait_for(b, [a])
    again = await open_at(tmp_path / "users.json")
    assert again.find("c@example.com").after == (a.id, b.id)
    with pytest.raises(
        InvalidDependency,
        match=r"a@example\.com after c@example\.com after a@example\.com",
    ):
        await again.wait_for(a, [c])
    with pytest.raises(InvalidDependency, match="itself"):
        await again.wait_for(a, [a])
    assert again.find(a.id).after == ()
    # When one of them goes, then nobody waits for it
    await again.remove("a@example.com")
    assert again.find(c.id).after == (b.id,)
    assert again.find(b.id).after == ()


async def test_the_users_of_the_settings_stay_the_same_until_their_password_changes(
    tmp_path: Path,
) -> None:
    first = await open_at(tmp_path / "users.json")
    again = await open_at(tmp_path / "users.json")
    assert again.all() == first.all()
    changed = await open_at(tmp_path / "users.json", user_password="another")
    assert changed.find("user").id == first.find("user").id
    assert changed.find("user").stamp != first.find("user").stamp
    assert changed.find("admin") == first.find("admin")


async def test_a_file_of_the_first_version_is_understood(tmp_path: Path) -> None:
    (tmp_path / "users.json").write_bytes(
        b'{"version": 1, "users": [{"username": "alice", "password_hash": "$2b$10$x", '
        b'"role": "ADMIN", "requests_per_second": 7}]}'
    )
    [alice] = (await open_at(tmp_path / "users.json")).stored()
    assert (alice.username, alice.role, alice.requests_per_second) == ("alice", Role.ADMIN, 7)
    # And from then on it keeps its id
    assert (await open_at(tmp_path / "users.json")).stored() == [alice]


@pytest.mark.parametrize("content", [b"", b"{", b'{"version": 1}', b"\xff", b'{"users": []}'])
async def test_a_damaged_file_is_not_taken_for_an_empty_one(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "users.json"
    path.write_bytes(content)
    with pytest.raises(CorruptLog, match=r"users\.json is damaged"):
        await open_at(path)


async def test_a_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "users.json"
    path.write_bytes(b'{"version": 3, "users": []}')
    with pytest.raises(NewerFormat):
        await open_at(path)


async def test_a_repair_of_the_log_leaves_users_and_key_where_they_are(tmp_path: Path) -> None:
    users = await open_at(tmp_path / "users.json")
    await users.add("alice", "secret", Role.USER)
    clock = ManualClock()
    await open_tokens(LocalShared(tmp_path, clock), lifetime_seconds=60, clock=clock)
    async with penstock.open(tmp_path) as broker:
        await broker.create_queue("orders")
    files = DiskFiles(tmp_path)
    [checkpoint] = [name for name in files.names() if name.endswith(".ckpt")]
    (tmp_path / checkpoint).write_bytes(b"damaged")
    plan = plan_repair(files, rng=Random(1))
    assert plan.is_needed
    assert plan.aside
    assert not {"users.json", "token.key"} & set(plan.aside)
