from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.column import BLOCK_BITS
from penstock.core.timeline import Batch, Timeline

BITS = 2
"""The columns have blocks of four entries, so that a dozen batches are in several of them."""

_BATCHES = st.lists(
    # messages, nanoseconds since the batch before, bytes
    st.tuples(st.integers(1, 4), st.integers(0, 3), st.integers(0, 9)),
    max_size=12,
)


def filled(batches: list[tuple[int, int, int]]) -> tuple[Timeline, list[Batch], list[int]]:
    """A timeline, its batches, and the bytes of each."""
    timeline, expected, sizes = Timeline(BITS), [], []
    first, created_ns = 0, 100
    for locator, (count, pause_ns, size) in enumerate(batches, 1):
        created_ns += pause_ns
        timeline.append(first, created_ns, size, locator, 7)
        expected.append(Batch(first, created_ns, locator, 7))
        sizes.append(size)
        first += count
    return timeline, expected, sizes


def end_of(batches: list[tuple[int, int, int]]) -> int:
    return sum(count for count, _, _ in batches)


@given(_BATCHES, st.data())
def test_an_index_leads_to_its_batch(
    batches: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    timeline, expected, _ = filled(batches)
    assert len(timeline) == len(batches)
    end = end_of(batches)
    for index in range(end):
        found = max(batch for batch in expected if batch.first <= index)
        assert timeline.batch(index) == found
        assert timeline.created_ns(index) == found.created_ns
    start = data.draw(st.integers(0, end))
    stop = data.draw(st.integers(start, end))
    holding = {timeline.batch(index) for index in range(start, stop)}
    if start < stop:
        assert timeline.batches(start, stop) == sorted(holding)


@given(_BATCHES, st.integers(95, 140), st.integers(0, 60))
def test_times_and_sizes_lead_to_indexes(
    batches: list[tuple[int, int, int]], time_ns: int, size: int
) -> None:
    timeline, expected, sizes = filled(batches)
    later = [batch.first for batch in expected if batch.created_ns >= time_ns]
    assert timeline.index_at_time(time_ns) == (later[0] if later else None)
    fitting = [b.first for at, b in enumerate(expected) if sum(sizes[at:]) <= size]
    assert timeline.index_at_bytes(size) == (fitting[0] if fitting else None)
    for at, batch in enumerate(expected):
        assert timeline.bytes_from(batch.first) == sum(sizes[at:])
        for until in range(at, len(expected)):
            last = expected[until].first
            assert timeline.bytes_within(batch.first, last + 1) == sum(sizes[at : until + 1])


@given(_BATCHES, st.data())
def test_a_trim_forgets_what_lies_wholly_before(
    batches: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    timeline, expected, _ = filled(batches)
    end = end_of(batches)
    first = data.draw(st.integers(0, end))
    timeline.trim(first, end)
    ends = [batch.first for batch in expected[1:]] + [end]
    kept = [batch for batch, stop in zip(expected, ends, strict=False) if stop > first]
    assert len(timeline) == len(kept)
    if kept:
        assert timeline.batches(first, end) == kept
        assert timeline.index_at_time(0) == kept[0].first
    for index in range(kept[0].first if kept else end):
        assert timeline.created_ns(index) is None
        with pytest.raises(IndexError):
            timeline.batch(index)


def test_many_trims_keep_the_columns_short() -> None:
    timeline = Timeline()
    for index in range(10_000):
        timeline.append(index, index, 1, index + 1, 1)
        timeline.trim(index, index + 1)
    assert len(timeline) == 1
    assert {len(column) >> BLOCK_BITS for column in timeline._columns} <= {0, 1}
    assert timeline.batch(9_999) == Batch(9_999, 9_999, 10_000, 1)
    assert timeline.bytes_total == 10_000
    assert timeline.bytes_from(9_999) == 1


@given(_BATCHES.filter(bool), st.integers(0, 30), st.data())
def test_places_end_before_too_many_bytes(
    batches: list[tuple[int, int, int]], most_bytes: int, data: st.DataObject
) -> None:
    # Given a timeline whose front may have been cut
    timeline, expected, sizes = filled(batches)
    end = end_of(batches)
    first = data.draw(st.integers(0, end - 1))
    timeline.trim(first, end)
    start = data.draw(st.integers(first, end - 1))
    stop = data.draw(st.integers(start + 1, end))
    # When many places are asked for
    places = timeline.places(start, stop, most_bytes)
    # Then they are those of the first batches that begin within the bytes, and of one at least
    ends = [batch.first for batch in expected[1:]] + [end]
    held = [
        at
        for at, (batch, after) in enumerate(zip(expected, ends, strict=True))
        if batch.first < stop and after > start
    ]
    taken = [at for at in held if at == held[0] or sum(sizes[held[0] : at]) <= most_bytes]
    assert list(places.locators) == [expected[at].locator for at in taken]
    assert list(places.lengths) == [expected[at].length for at in taken]
    assert places.stop == min(stop, ends[taken[-1]])


@given(_BATCHES)
def test_bytes_are_summed_by_area(batches: list[tuple[int, int, int]]) -> None:
    timeline, expected, sizes = filled(batches)
    found = list(timeline.bytes_by_area(2))
    for area, count, size in found:
        within = [at for at, batch in enumerate(expected) if batch.locator >> 2 == area]
        assert (count, size) == (len(within), sum(sizes[at] for at in within))
    assert [area for area, _, _ in found] == sorted({b.locator >> 2 for b in expected})


@given(_BATCHES, st.integers(0, 13))
def test_parts_that_are_dumped_and_loaded_are_the_whole(
    batches: list[tuple[int, int, int]], border: int
) -> None:
    timeline, expected, _ = filled(batches)
    loaded = Timeline(BITS)
    loaded.load(timeline.dump(0, border))
    loaded.load(timeline.dump(border, 1000))
    assert loaded.bytes_total == timeline.bytes_total
    assert loaded.located(0, 1000) == expected
    for batch in expected:
        assert loaded.bytes_from(batch.first) == timeline.bytes_from(batch.first)


@given(st.integers(0, 11), st.integers(0, 11))
def test_batches_can_be_moved_to_other_places(low: int, high: int) -> None:
    timeline, expected, _ = filled([(1, 0, 1)] * 11)  # their locators are 1 to 11
    # Given places that are far from one another
    timeline.relocate(1, 12, [(100 * batch.locator, 7) for batch in expected])
    # When those of a range are moved a little
    moved = range(max(low, 1), high)
    timeline.relocate(100 * low, 100 * high, [(100 * locator + 42, 9) for locator in moved])
    # Then they are found there, and the others are where they were
    after = [
        batch._replace(locator=100 * batch.locator + 42, length=9)
        if batch.locator in moved
        else batch._replace(locator=100 * batch.locator)
        for batch in expected
    ]
    assert [timeline.batch(index) for index in range(11)] == after
    assert timeline.located(0, 2000) == after
    for batch in after:
        assert timeline.located(batch.locator, batch.locator + 1) == [batch]
