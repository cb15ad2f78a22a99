"""The machine's clock, which people and daemons set."""

from __future__ import annotations

from penstock.clock import SystemClock

SECOND = 1_000_000_000


class Times:
    """What the machine says: the time of day, and the time since it was started."""

    def __init__(self) -> None:
        self.wall = 1_000 * SECOND
        self.monotonic = 5 * SECOND

    def pass_(self, seconds: int) -> None:
        self.wall += seconds * SECOND
        self.monotonic += seconds * SECOND

    def clock(self) -> SystemClock:
        return SystemClock(lambda: self.wall, lambda: self.monotonic)


def test_it_says_what_the_machine_says() -> None:
    times = Times()
    clock = times.clock()
    for _ in range(3):
        assert clock.now_ns() == times.wall
        times.pass_(7)
    times.wall += 3600 * SECOND
    assert clock.now_ns() == times.wall


def test_after_the_machine_was_set_back_time_goes_on_until_it_is_caught_up_with() -> None:
    times = Times()
    clock = times.clock()
    times.wall += 100 * SECOND
    ahead = clock.now_ns()
    times.wall -= 100 * SECOND
    # Then it goes on, slowly, and is never behind itself
    seen = [ahead]
    for _ in range(50):
        times.pass_(3)
        seen.append(clock.now_ns())
    assert seen == [ahead + n * SECOND * 3 // 2 for n in range(51)]
    times.pass_(60)
    assert clock.now_ns() == times.wall
