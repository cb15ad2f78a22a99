from __future__ import annotations

import math
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.retry import Backoff
from penstock.errors import InvalidArgument


def delays(backoff: Backoff, attempts: int, *, seed: int = 1) -> list[float]:
    rng = random.Random(seed)
    return [backoff.delay_seconds(attempt, rng) for attempt in range(1, attempts + 1)]


def test_the_default_does_not_wait() -> None:
    assert delays(Backoff(), 3) == [0.0, 0.0, 0.0]


def test_a_fixed_backoff_waits_the_same_each_time() -> None:
    assert delays(Backoff(base_seconds=5), 3) == [5.0, 5.0, 5.0]


def test_an_exponential_backoff_grows_up_to_its_maximum() -> None:
    backoff = Backoff(kind="exponential", base_seconds=1, factor=3, max_seconds=20)

    assert delays(backoff, 5) == [1.0, 3.0, 9.0, 20.0, 20.0]


@pytest.mark.parametrize("attempt", [1_000, 10**6, 10**400])
def test_an_exponential_backoff_never_overflows(attempt: int) -> None:
    backoff = Backoff(kind="exponential", base_seconds=1, factor=2, max_seconds=600)

    assert backoff.delay_seconds(attempt, random.Random(1)) == 600.0


def test_an_exponential_backoff_from_zero_stays_at_zero() -> None:
    backoff = Backoff(kind="exponential", base_seconds=0, factor=10, jitter=1)

    assert backoff.delay_seconds(10**6, random.Random(1)) == 0.0


def test_jitter_takes_away_at_most_its_part_of_the_wait() -> None:
    jittered = delays(Backoff(base_seconds=100, jitter=0.25), 1_000)

    assert min(jittered) >= 75.0
    assert max(jittered) <= 100.0
    assert max(jittered) - min(jittered) > 20.0


def test_the_same_seed_gives_the_same_waits() -> None:
    backoff = Backoff(kind="exponential", base_seconds=1, jitter=1)

    assert delays(backoff, 10, seed=7) == delays(backoff, 10, seed=7)
    assert delays(backoff, 10, seed=7) != delays(backoff, 10, seed=8)


def test_no_number_is_taken_where_there_is_nothing_to_jitter() -> None:
    rng = random.Random(1)
    before = rng.getstate()

    Backoff(base_seconds=5).delay_seconds(1, rng)
    Backoff(jitter=1).delay_seconds(1, rng)

    assert rng.getstate() == before


@given(
    base=st.floats(0, 1e6),
    factor=st.floats(1, 1e300),
    beyond=st.floats(0, 1e6),
    jitter=st.floats(0, 1),
    attempt=st.integers(1, 10**9),
    seed=st.integers(0, 2**32),
)
def test_a_wait_is_never_negative_nor_above_the_maximum(
    base: float, factor: float, beyond: float, jitter: float, attempt: int, seed: int
) -> None:
    backoff = Backoff(
        kind="exponential",
        base_seconds=base,
        factor=factor,
        max_seconds=base + beyond,
        jitter=jitter,
    )

    assert 0.0 <= backoff.delay_seconds(attempt, random.Random(seed)) <= base + beyond


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kind", "linear"),
        ("base_seconds", -1),
        ("base_seconds", math.nan),
        ("base_seconds", math.inf),
        ("base_seconds", "5"),
        ("base_seconds", True),
        ("factor", 0.5),
        ("factor", math.inf),
        ("max_seconds", -1),
        ("max_seconds", math.inf),
        ("jitter", -0.1),
        ("jitter", 1.1),
        ("jitter", math.nan),
    ],
)
def test_a_value_out_of_its_range_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(InvalidArgument, match=field):
        Backoff(**{field: value})


def test_a_base_above_the_maximum_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="max_seconds"):
        Backoff(base_seconds=10, max_seconds=5)


def test_a_stored_backoff_is_checked_when_it_is_read() -> None:
    with pytest.raises(InvalidArgument, match="jitter"):
        msgspec.json.decode(b'{"jitter": 2}', type=Backoff)


def test_an_attempt_below_one_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="counted from 1"):
        Backoff().delay_seconds(0, random.Random(1))


def test_a_backoff_survives_being_stored() -> None:
    backoff = Backoff(kind="exponential", base_seconds=0.5, factor=3, max_seconds=60, jitter=0.1)

    assert msgspec.msgpack.decode(msgspec.msgpack.encode(backoff), type=Backoff) == backoff
