from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.feed import Feed
from penstock.core.filters import compile_filter
from penstock.core.runs import Runs, runs_of

_MESSAGES = st.lists(
    # priority, special, matches
    st.tuples(st.sampled_from([0, 0, 3, 9]), st.booleans(), st.booleans()),
    max_size=25,
)


def new_feed(since: int = 0, *, filtered: bool = False) -> Feed:
    compiled = compile_filter('topic == "t"') if filtered else None
    return Feed(id=1, filter=compiled, since=since)


def put(feed: Feed, index: int, priority: int, special: bool) -> None:
    if priority or special:
        feed.add_one(index, priority=priority, special=special)
    else:
        feed.add(index, index + 1)


def _indexes(runs: Runs) -> list[int]:
    return [index for run in runs for index in range(*run)]


def contents(feed: Feed) -> tuple[list[int], dict[int, list[int]], list[int], int]:
    lanes = {p: _indexes(lane) for p, lane in feed.lanes.items() if lane}
    return _indexes(feed.matched), lanes, list(feed.special), feed.total


def test_plain_messages_are_one_lane_and_cost_one_run() -> None:
    feed = new_feed()
    feed.add(0, 1000)
    feed.add(1000, 2000)
    assert feed.lanes[0] is feed.matched
    assert list(feed.matched) == [(0, 2000)]


@given(_MESSAGES)
def test_every_match_is_in_one_lane_or_special(messages: list[tuple[int, bool, bool]]) -> None:
    feed = new_feed()
    for index, (priority, special, _) in enumerate(messages):
        put(feed, index, priority, special)
    matched, lanes, specials, total = contents(feed)
    assert matched == list(range(len(messages)))
    assert total == len(messages)
    assert sorted([*specials, *(i for lane in lanes.values() for i in lane)]) == matched
    for priority, lane in lanes.items():
        assert all(messages[i][:2] == (priority, False) for i in lane)


@given(_MESSAGES, st.integers(0, 25))
def test_a_backfilled_feed_is_the_one_that_was_there_all_along(
    messages: list[tuple[int, bool, bool]], since: int
) -> None:
    since = min(since, len(messages))
    everything, always = new_feed(), new_feed(filtered=True)
    late = new_feed(since, filtered=True)
    for index, (priority, special, matches) in enumerate(messages):
        put(everything, index, priority, special)
        if matches:
            put(always, index, priority, special)
            if index >= since:
                put(late, index, priority, special)
    older = runs_of(i for i in range(since) if messages[i][2])
    late.backfill(0, older, everything)
    assert contents(late) == contents(always)
    assert late.since == 0


@given(_MESSAGES, st.integers(0, 25))
def test_a_trim_forgets_nothing_that_is_still_there(
    messages: list[tuple[int, bool, bool]], first: int
) -> None:
    feed = new_feed()
    for index, (priority, special, matches) in enumerate(messages):
        if matches:
            put(feed, index, priority, special)
    before, total = contents(feed)[0], feed.total
    feed.trim(first)
    assert [i for i in _indexes(feed.matched) if i >= first] == [i for i in before if i >= first]
    assert feed.total == total
    assert all(index >= first for index in feed.special)
    assert list(feed.special_within(first, 99)) == list(feed.special)


@given(_MESSAGES, st.integers(0, 25), st.integers(0, 25))
def test_what_is_lost_is_nowhere_and_counts_as_settled(
    messages: list[tuple[int, bool, bool]], start: int, stop: int
) -> None:
    feed = new_feed()
    for index, (priority, special, _) in enumerate(messages):
        put(feed, index, priority, special)
    feed.lose(start, stop)
    matched, lanes, specials, total = contents(feed)
    assert matched == [i for i in range(len(messages)) if not start <= i < stop]
    assert sorted([*specials, *(i for lane in lanes.values() for i in lane)]) == matched
    assert total == len(messages)
