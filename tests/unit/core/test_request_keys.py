from __future__ import annotations

from collections.abc import Callable

from hypothesis import example, given
from hypothesis import strategies as st

from penstock.core.request_keys import PastRequest, RequestKeys, runs_in_order

_INDEXES = st.lists(st.integers(0, 12), min_size=1, max_size=20)


@given(_INDEXES)
def test_a_request_is_answered_with_the_same_indexes_in_the_same_order(indexes: list[int]) -> None:
    assert PastRequest(runs_in_order(indexes)).indexes == indexes


@given(_INDEXES, st.integers(0, 12), st.integers(1, 12))
@example([7, 2, 4], 3, 1)
@example([7, 2, 4], 2, 2)
def test_a_request_is_forgotten_if_any_of_its_messages_is_lost(
    indexes: list[int], first: int, count: int
) -> None:
    keys = RequestKeys()
    keys.note("k", 5, PastRequest(runs_in_order(indexes)))
    keys.lose(first, first + count)
    is_known = not any(first <= index < first + count for index in indexes)
    assert (keys.get("k", 0) is not None) == is_known
    assert len(keys) == len(keys.recent) == is_known


def test_what_is_forgotten_or_plain_now_takes_no_space() -> None:
    ways: list[Callable[[RequestKeys], None]] = [
        lambda keys: keys.forget(5),
        lambda keys: keys.lose(0, 9),
        lambda keys: keys.note("k", 6, PastRequest((7, 8))),
    ]
    for way in ways:
        keys = RequestKeys()
        keys.note("k", 5, PastRequest((3, 5, 1, 2)))
        assert keys.get("k", 4) == (5, PastRequest((3, 5, 1, 2)))
        way(keys)
        assert keys.others == {}
