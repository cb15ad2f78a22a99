"""How passwords are checked, and when a verdict counts."""

from __future__ import annotations

import asyncio
import contextlib
import time

import bcrypt
import pytest

from penstock.http.auth import (
    FREE_FAILURES,
    REMEMBER_SECONDS,
    Authenticator,
    Identity,
    Role,
    TooManyFailures,
    User,
    hash_password,
)
from tests.http.client import basic

RIGHT = basic("alice", "wonderland").encode()
HASHED = hash_password("wonderland")


class World:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.checks = 0
        self.users = {"alice": User(HASHED, Role.USER)}
        self.authenticator = Authenticator(self.users, monotonic=lambda: self.now)

        def quick(password: bytes, expected: bytes) -> bool:
            self.checks += 1
            time.sleep(0.01)  # as bcrypt does it, in a thread
            return (password, expected) == (b"wonderland", HASHED)

        monkeypatch.setattr(bcrypt, "checkpw", quick)

    async def fail(self, name: str = "alice") -> None:
        wrong = basic(name, f"wrong {self.checks}").encode()
        assert await self.authenticator.identify(wrong) is None


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


async def test_a_right_password_is_checked_once(world: World) -> None:
    for _ in range(100):
        assert await world.authenticator.identify(RIGHT) == Identity("alice", Role.USER)
    assert world.checks == 1


async def test_many_who_come_at_once_share_a_check(world: World) -> None:
    found = await asyncio.gather(*[world.authenticator.identify(RIGHT) for _ in range(50)])
    assert set(found) == {Identity("alice", Role.USER)}
    assert world.checks == 1


async def test_a_verdict_that_nobody_uses_is_forgotten_after_minutes(world: World) -> None:
    await world.authenticator.identify(RIGHT)
    world.now += REMEMBER_SECONDS + 1
    await world.authenticator.identify(RIGHT)
    assert world.checks == 2


async def test_who_guesses_at_a_name_does_not_lock_its_owner_out(world: World) -> None:
    # Given an owner who comes every minute
    await world.authenticator.identify(RIGHT)
    # When somebody guesses for an hour
    for _ in range(60):
        world.now += 60
        with contextlib.suppress(TooManyFailures):
            await world.fail()
        # Then the owner is let in each time
        assert await world.authenticator.identify(RIGHT) is not None


async def test_after_some_failures_a_name_must_wait(world: World) -> None:
    for _ in range(FREE_FAILURES + 1):
        await world.fail()
    with pytest.raises(TooManyFailures) as failure:
        await world.fail()
    assert failure.value.seconds == pytest.approx(1)
    # Without a check, so that guessing costs the server nothing
    assert world.checks == FREE_FAILURES + 1
    # And longer with each
    world.now += 1.01
    await world.fail()
    with pytest.raises(TooManyFailures) as failure:
        await world.fail()
    assert failure.value.seconds == pytest.approx(2)
    # When the time is over, then the right one is accepted
    world.now += 2.01
    assert await world.authenticator.identify(RIGHT) is not None


async def test_an_unknown_name_is_checked_as_long_as_a_known_one(world: World) -> None:
    await world.fail("nobody")
    assert world.checks == 1


async def test_a_forgotten_name_is_checked_anew(world: World) -> None:
    await world.authenticator.identify(RIGHT)
    del world.users["alice"]
    world.authenticator.forget("alice")
    assert await world.authenticator.identify(RIGHT) is None


async def test_a_user_that_goes_during_a_check_is_not_let_in(world: World) -> None:
    check = asyncio.ensure_future(world.authenticator.identify(RIGHT))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    del world.users["alice"]
    assert await check is None
    assert await world.authenticator.identify(RIGHT) is None


async def test_the_loop_goes_on_while_a_password_is_checked(world: World) -> None:
    check = asyncio.ensure_future(world.authenticator.identify(RIGHT))
    turns = 0
    while not check.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 10
