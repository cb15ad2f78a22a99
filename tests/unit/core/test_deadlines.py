from __future__ import annotations

from penstock.core.deadlines import Deadlines
from penstock.core.lease import Lease, Leases


def test_a_delivery_is_overdue_as_a_whole_but_for_what_was_settled() -> None:
    # Given five messages that were delivered together, one of which is settled
    deadlines = Deadlines()
    deadlines.add(10, 1, [(0, 3), (7, 9)])
    leases = Leases(dict.fromkeys([0, 1, 7, 8], Lease(1, 10, 1)))
    # Then the others are overdue when their time has come, and are named once
    assert deadlines.overdue(leases, 9) == []
    assert deadlines.overdue(leases, 10) == [0, 1, 7, 8]
    assert deadlines.overdue(leases, 11) == []


def test_a_lease_that_was_extended_is_overdue_at_its_last_deadline() -> None:
    deadlines = Deadlines()
    deadlines.add(10, 1, [(0, 1)])
    deadlines.add(20, 1, [(0, 1)])
    leases = Leases({0: Lease(1, 20, 1)})
    assert deadlines.overdue(leases, 10) == []
    assert deadlines.overdue(leases, 20) == [0]


def test_the_deadline_of_an_earlier_delivery_does_not_end_a_later_one() -> None:
    deadlines = Deadlines()
    deadlines.add(10, 1, [(0, 1)])
    deadlines.add(15, 2, [(0, 1)])
    leases = Leases({0: Lease(2, 15, 2)})
    assert deadlines.overdue(leases, 10) == []
    assert deadlines.overdue(leases, 15) == [0]


def test_those_of_a_snapshot_are_known_and_some_never_end() -> None:
    leases = Leases({0: Lease(1, 10, 1), 1: Lease(1, None, 1), 2: Lease(2, 5, 1)})
    deadlines = Deadlines(leases)
    assert deadlines.overdue(leases, 5) == [2]
    assert deadlines.overdue(leases, 99) == [0]
