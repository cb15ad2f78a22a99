from __future__ import annotations

import random

import pytest

from penstock.client.errors import TooManyRequests, Unreachable
from penstock.client.retry import Failure, Retry
from penstock.core.retry import Backoff
from penstock.errors import InvalidArgument, QueueNotFound

LOST = Failure(Unreachable("no answer"), is_transient=True, may_be_done=True)
NEVER_SENT = Failure(Unreachable("no connection"), is_transient=True, may_be_done=False)
REFUSED = Failure(QueueNotFound("none"), is_transient=False, may_be_done=False)

FIXED = Retry(attempts=3, backoff=Backoff(base_seconds=0.5, max_seconds=4))


def delay(failure: Failure, attempt: int = 1, *, is_repeatable: bool = True) -> float | None:
    return FIXED.delay_seconds(failure, attempt, is_repeatable=is_repeatable, rng=random.Random(1))


def test_a_lost_answer_is_asked_for_again_only_where_twice_is_the_same_as_once() -> None:
    assert delay(LOST, is_repeatable=True) == 0.5
    assert delay(LOST, is_repeatable=False) is None


def test_what_was_never_sent_is_always_sent_again() -> None:
    assert delay(NEVER_SENT, is_repeatable=False) == 0.5


def test_a_refusal_that_would_come_again_is_final() -> None:
    assert delay(REFUSED) is None


def test_the_attempts_are_counted_from_the_first() -> None:
    assert delay(LOST, 2) == 0.5
    assert delay(LOST, 3) is None


def test_the_server_may_ask_for_a_longer_pause_but_not_for_any() -> None:
    limited = Failure(TooManyRequests("slow down"), is_transient=True, may_be_done=False)

    assert delay(limited._replace(retry_after_seconds=2)) == 2
    assert delay(limited._replace(retry_after_seconds=0)) == 0.5
    assert delay(limited._replace(retry_after_seconds=3600)) == 4


def test_pauses_grow_and_are_jittered_by_the_randomness_passed_in() -> None:
    retry = Retry()
    pauses = [
        retry.delay_seconds(LOST, attempt, is_repeatable=True, rng=random.Random(7))
        for attempt in range(1, retry.attempts)
    ]

    assert all(pause is not None for pause in pauses)
    assert pauses == sorted(pauses, key=lambda pause: pause or 0)
    assert pauses[0] is not None
    assert 0.05 <= pauses[0] < 0.1


def test_no_attempt_at_all_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="attempts is 0"):
        Retry(attempts=0)
