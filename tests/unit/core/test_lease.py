from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.lease import Lease, Leases

INDEXES = range(24)
bounds = st.tuples(st.integers(0, 24), st.integers(0, 24)).map(lambda two: tuple(sorted(two)))
steps = st.lists(st.tuples(st.sampled_from(["put", "take"]), bounds, st.integers(1, 3)))


def lease(epoch: int) -> Lease:
    return Lease(epoch, None, 1)


@given(steps)
def test_they_are_what_a_dict_by_index_would_be(
    steps: list[tuple[str, tuple[int, int], int]],
) -> None:
    leases = Leases()
    plain: dict[int, Lease] = {}
    for step, (start, stop), epoch in steps:
        span = range(start, stop)
        if step == "take":
            taken = leases.take(start, stop)
            expected = {index: plain.pop(index) for index in span if index in plain}
            assert {i: one for a, b, one in taken for i in range(a, b)} == expected
        else:
            for a, b in list(leases.outside(start, stop)):
                leases.put(a, b, lease(epoch))
                plain |= dict.fromkeys(range(a, b), lease(epoch))
        # They are in order, and none of them is empty
        runs = [(a, b) for a, b, _ in leases]
        assert all(a < b for a, b in runs)
        assert runs == sorted(runs)
        # And every look at them says the same as one at the dict
        assert leases.by_index() == plain
        assert len(leases) == len(plain)
        assert [leases.get(i) for i in INDEXES] == [plain.get(i) for i in INDEXES]
        assert [i in leases for i in INDEXES] == [i in plain for i in INDEXES]
        within = {i: one for a, b, one in leases.within(start, stop) for i in range(a, b)}
        assert within == {i: plain[i] for i in span if i in plain}
        outside = [i for a, b in leases.outside(start, stop) for i in range(a, b)]
        assert outside == [i for i in span if i not in plain]
        if start < stop:
            assert leases.covers(start, stop, epoch) == all(
                i in plain and plain[i].epoch == epoch for i in span
            )
        # And what a snapshot keeps of them is all there is to know
        assert Leases(leases.by_index()) == leases


def test_what_was_received_together_is_one_entry_until_some_of_it_is_settled() -> None:
    leases = Leases()
    leases.put(0, 100, lease(1))
    leases.put(100, 200, lease(2))
    assert len(list(leases)) == 2
    leases.take(10, 11)
    assert [(a, b, one.epoch) for a, b, one in leases] == [(0, 10, 1), (11, 100, 1), (100, 200, 2)]
    leases.take(0, 150)
    assert [(a, b, one.epoch) for a, b, one in leases] == [(150, 200, 2)]
