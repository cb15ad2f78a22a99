"""A feed: the messages of a queue that match one filter, in the form that cursors walk.

Subscriptions with the same filter share a feed, so a publish updates it once, however many of them
read it. Matches are kept as runs; the feed of everything has a single one.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left

from penstock.core.filters import Filter
from penstock.core.runs import Run, Runs

__all__ = ["Feed"]


class Feed:
    """Matches of one filter from index `since` on.

    `lanes` holds, by priority, what can be delivered as soon as a cursor reaches it; `special` is
    what has a delay or a group and is looked at one by one. Together they are `matched`.
    """

    __slots__ = ("errors", "filter", "id", "lanes", "matched", "since", "special", "total")

    def __init__(self, *, id: int, filter: Filter | None, since: int) -> None:
        self.id = id
        self.filter = filter
        self.since = since
        self.matched = Runs()
        self.lanes: dict[int, Runs] = {0: self.matched}  # the same object until they differ
        self.special = array("Q")
        self.total = 0
        self.errors = 0

    def add(self, start: int, stop: int) -> None:
        """Add plain matches: no priority, delay or group."""
        self.matched.add(start, stop)
        lane = self.lanes[0]
        if lane is not self.matched:
            lane.add(start, stop)
        self.total += stop - start

    def add_one(self, index: int, *, priority: int, special: bool) -> None:
        self._split()
        self.matched.add(index, index + 1)
        self.total += 1
        if special:
            self.special.append(index)
        else:
            self.lanes.setdefault(priority, Runs()).add(index, index + 1)

    def backfill(self, since: int, matches: list[Run], everything: Feed) -> None:
        """Add older matches that were found later. ``everything`` tells their lanes.

        They all precede the feed's own matches, which are appended to them in one go.
        """
        special = array("Q")
        self._split()
        matched = Runs(matches)
        lanes: dict[int, Runs] = {priority: Runs() for priority in everything.lanes}
        for start, stop in matched:
            for priority, lane in everything.lanes.items():
                for part in lane.within(start, stop):
                    lanes[priority].add(*part)
            special.extend(everything.special_within(start, stop))
        self.total += matched.count
        matched.extend(self.matched)
        self.matched = matched
        for priority, older in lanes.items():
            if older:
                older.extend(self.lanes.get(priority, Runs()))
                self.lanes[priority] = older
        self.special = special + self.special
        self.since = since

    def _split(self) -> None:
        if self.lanes[0] is self.matched:
            self.lanes[0] = self.matched.copy()

    def special_within(self, start: int, stop: int) -> array[int]:
        low = bisect_left(self.special, start)
        return self.special[low : bisect_left(self.special, stop, low)]

    def lose(self, start: int, stop: int) -> None:
        """Drop matches that cannot be read any more. They still count in `total`, as settled."""
        self.matched.discard(start, stop)
        for lane in self.lanes.values():
            lane.discard(start, stop)
        low = bisect_left(self.special, start)
        del self.special[low : bisect_left(self.special, stop, low)]

    def trim(self, first: int) -> None:
        """Forget matches below an index, except in a single run, which costs nothing to keep."""
        if len(self.matched) > 1:
            self.matched.discard(0, first)
        for lane in self.lanes.values():
            if lane is not self.matched and len(lane) > 1:
                lane.discard(0, first)
        del self.special[: bisect_left(self.special, first)]
