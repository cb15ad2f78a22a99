"""How passwords are checked, and when a verdict counts."""

from __future__ import annotations

import asyncio
import contextlib
import time

import bcrypt
import msgspec
import pytest

from penstock.http.auth.authenticator import FREE_FAILURES, REMEMBER_SECONDS, Authenticator
from penstock.http.auth.passwords import MAX_WAITING, Passwords, TooManyPasswords, hash_password
from penstock.http.auth.tokens import Tokens
from penstock.http.auth.user import Role, User, canonical
from tests.contract.clock import ManualClock
from tests.http.client import basic

RIGHT = basic("alice", "wonderland").encode()
HASHED = hash_password("wonderland")


class World:
    """One user, Alice, whose password is right without the work of checking it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.clock = ManualClock()
        self.checks = 0
        self.refreshed = 0
        self.tokens = Tokens(b"k" * 32, lifetime_seconds=3600, clock=self.clock)
        self.authenticator = Authenticator(
            self, passwords=Passwords(), tokens=self.tokens, monotonic=lambda: self.now
        )
        self.alice: User | None = User(
            id="1", username="alice", password_hash=HASHED, stamp="first", role=Role.USER
        )

        def quick(password: bytes, expected: bytes) -> bool:
            self.checks += 1
            time.sleep(0.01)  # as bcrypt does it, in a thread
            return (password, expected) == (b"wonderland", HASHED.encode())

        monkeypatch.setattr(bcrypt, "checkpw", quick)

    def get(self, username: str) -> User | None:
        if self.alice is None or canonical(username) != self.alice.username:
            return None
        return self.alice

    def by_id(self, id: str) -> User | None:
        return self.alice if id == "1" else None

    async def refresh(self) -> None:
        self.refreshed += 1

    def change(self, **changes: object) -> None:
        assert self.alice is not None
        self.alice = msgspec.structs.replace(self.alice, **changes)

    async def token(self, form: str = "Bearer {}") -> bytes:
        user = await self.authenticator.check("alice", "wonderland")
        assert user is not None
        return form.format(self.tokens.issue(user)).encode()

    async def fail(self, name: str = "alice") -> None:
        wrong = basic(name, f"wrong {self.checks}").encode()
        assert await self.authenticator.identify(wrong) is None


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


async def test_a_right_password_is_checked_once(world: World) -> None:
    for _ in range(100):
        assert await world.authenticator.identify(RIGHT) is world.alice
    assert world.checks == 1


async def test_many_who_come_at_once_share_a_check(world: World) -> None:
    found = await asyncio.gather(*[world.authenticator.identify(RIGHT) for _ in range(50)])
    assert found == [world.alice] * 50
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
        with contextlib.suppress(TooManyPasswords):
            await world.fail()
        # Then the owner is let in each time
        assert await world.authenticator.identify(RIGHT) is not None


async def test_after_some_failures_a_name_must_wait(world: World) -> None:
    for _ in range(FREE_FAILURES + 1):
        await world.fail()
    with pytest.raises(TooManyPasswords) as failure:
        await world.fail()
    assert failure.value.seconds == pytest.approx(1)
    # Without a check, so that guessing costs the server nothing
    assert world.checks == FREE_FAILURES + 1
    # And longer with each
    world.now += 1.01
    await world.fail()
    with pytest.raises(TooManyPasswords) as failure:
        await world.fail()
    assert failure.value.seconds == pytest.approx(2)
    # When the time is over, then the right one is accepted
    world.now += 2.01
    assert await world.authenticator.identify(RIGHT) is not None


async def test_an_unknown_name_is_checked_as_long_as_a_known_one(world: World) -> None:
    await world.fail("nobody")
    assert world.checks == 1


async def test_a_known_and_an_unknown_name_cost_the_same_checks_all_the_way(world: World) -> None:
    # Given as many wrong passwords for each as are looked at, and more
    costs = {}
    for name in ("alice", "nobody"):
        outcomes: list[object] = []
        before = world.checks
        for number in range(FREE_FAILURES + 3):
            try:
                outcomes.append(await world.authenticator.check(name, f"wrong {number}"))
            except TooManyPasswords as exc:
                outcomes.append(exc.seconds)
        costs[name] = (world.checks - before, outcomes)
    # Then nothing tells them apart
    assert costs["alice"] == costs["nobody"]
    assert costs["alice"][0] == FREE_FAILURES + 1


async def test_how_a_name_is_written_does_not_tell_whether_there_is_such_a_user(
    world: World,
) -> None:
    # Given an address that somebody has, and one that nobody has
    world.change(username="alice@example.org")
    for name in ("alice@example.org", "nobody@example.org"):
        # When each is guessed at until it has to wait
        for number in range(FREE_FAILURES + 1):
            assert await world.authenticator.check(name, f"wrong {number}") is None
        # Then so does each in another spelling
        with pytest.raises(TooManyPasswords):
            await world.authenticator.check(name.title(), "wrong")


async def test_wrong_tokens_cost_no_check(world: World) -> None:
    for wrong in (b"Bearer a.b.c", b"a.b.c", b"Bearer", b"Bearer  ", b"..", b"Bearer a.b.\xff"):
        assert await world.authenticator.identify(wrong) is None
    assert world.checks == 0


async def test_a_verdict_ends_with_the_user(world: World) -> None:
    token = await world.token()
    for header in (RIGHT, token):
        assert await world.authenticator.identify(header) is world.alice
    world.alice = None
    for header in (RIGHT, token):
        assert await world.authenticator.identify(header) is None


async def test_a_verdict_ends_with_the_password(world: World) -> None:
    token = await world.token()
    for header in (RIGHT, token):
        assert await world.authenticator.identify(header) is world.alice
    world.change(stamp="second", password_hash="another")
    for header in (RIGHT, token):
        assert await world.authenticator.identify(header) is None


async def test_a_verdict_never_outlives_a_role(world: World) -> None:
    # Given an admin who is known by name and by token
    world.change(role=Role.ADMIN)
    token = await world.token()
    for header in (RIGHT, token):
        await world.authenticator.identify(header)
    # When she is one no more, then both say so at once
    world.change(role=Role.USER)
    for header in (RIGHT, token):
        user = await world.authenticator.identify(header)
        assert user is not None
        assert user.role is Role.USER


async def test_a_password_that_changes_during_a_check_lets_nobody_in(world: World) -> None:
    check = asyncio.ensure_future(world.authenticator.identify(RIGHT))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    world.change(stamp="second")
    assert await check is None


async def test_a_user_that_goes_during_a_check_is_not_let_in(world: World) -> None:
    check = asyncio.ensure_future(world.authenticator.identify(RIGHT))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    world.alice = None
    assert await check is None
    assert await world.authenticator.identify(RIGHT) is None


@pytest.mark.parametrize("form", ["Bearer {}", "bearer {}", "Bearer   {} ", "{}"])
async def test_a_token_is_as_good_as_its_password(world: World, form: str) -> None:
    token = await world.token(form)
    before = world.checks
    for _ in range(100):
        assert await world.authenticator.identify(token) is world.alice
    assert world.checks == before


async def test_a_token_ends_when_its_time_is_over_however_often_it_was_used(world: World) -> None:
    token = await world.token()
    for _ in range(36):
        assert await world.authenticator.identify(token) is world.alice
        world.clock.advance(99)
        world.now += 99
    world.clock.advance(36)
    assert await world.authenticator.identify(token) is None


async def test_only_so_many_passwords_wait_to_be_checked(world: World) -> None:
    attempts = [world.authenticator.check(f"name-{n}", "x") for n in range(MAX_WAITING + 10)]
    results = await asyncio.gather(*attempts, return_exceptions=True)
    assert sum(isinstance(result, TooManyPasswords) for result in results) == 10
    assert results.count(None) == MAX_WAITING


async def test_the_loop_goes_on_while_a_password_is_checked(world: World) -> None:
    check = asyncio.ensure_future(world.authenticator.identify(RIGHT))
    turns = 0
    while not check.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 10


async def test_other_servers_are_asked_before_a_refusal_and_never_for_who_is_known(
    world: World,
) -> None:
    token = await world.token()
    assert await world.authenticator.identify(RIGHT) is world.alice
    asked = world.refreshed
    for header in (token, RIGHT) * 10:
        assert await world.authenticator.identify(header) is world.alice
    assert world.refreshed == asked
    world.change(stamp="second")
    assert await world.authenticator.identify(token) is None
    assert world.refreshed == asked + 1
