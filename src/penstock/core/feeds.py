"""The feeds of a queue: for each filter in use, the messages that match it.

The invariant: a message has the same place in every feed that it matches. It is in the lane of its
priority, or special, as it is in the feed of everything.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from penstock.core.events import Published, pairs
from penstock.core.feed import Feed
from penstock.core.filters import compile_filter

__all__ = ["Feeds", "Special"]


# There may be millions: the garbage collector is to have nothing to do with them.
class Special(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Why a cursor cannot simply walk over a message. A `due_ns` of 0 is no delay."""

    priority: int
    due_ns: int
    group: str | None


class Feeds:
    """`reached` has the feeds that the last publish added to, `special` all special messages.

    Feeds that filter by topic alone are found by the topic. The matches of the `others` come with
    the publish: they take CEL to find, which is not run again at recovery.
    """

    __slots__ = ("by_filter", "by_topic", "everything", "others", "reached", "special")

    def __init__(self) -> None:
        self.everything = Feed(id=0, filter=None, since=0)
        self.by_filter: dict[str, Feed] = {}  # by the filter's text; without `everything`
        self.by_topic: dict[str, list[Feed]] = {}
        self.others: list[Feed] = []
        self.reached = [self.everything]
        self.special: dict[int, Special] = {}

    def __iter__(self) -> Iterator[Feed]:
        yield self.everything
        yield from self.by_filter.values()

    def add(self, event: Published, *, fifo: bool) -> None:
        """Add the messages of a publish. Groups count in a FIFO queue only."""
        first, stop = event.first, event.first + event.count
        reached = self.reached = [self.everything]
        if event.envelopes is None:
            self.everything.add(first, stop)
            for feed in self.by_topic.get("", ()):
                feed.add(first, stop)
                reached.append(feed)
        else:
            self._add_each(event, fifo=fifo)
        for feed in self.others:
            if feed.id in event.matched:
                for start, end in pairs(event.matched[feed.id]):
                    self._add_matches(feed, start, end)
                reached.append(feed)
            feed.errors += event.filter_errors.get(feed.id, 0)

    def _add_each(self, event: Published, *, fifo: bool) -> None:
        envelopes = event.envelopes or ()
        everything, by_topic = self.everything, self.by_topic
        if by_topic:
            for topic in {envelope.topic or "" for envelope in envelopes}:
                self.reached += by_topic.get(topic, ())
        for index, envelope in enumerate(envelopes, event.first):
            priority = envelope.priority
            group = envelope.group_key if fifo else None
            due_ns = envelope.not_before_ns or 0
            if due_ns <= event.at_ns:
                due_ns = 0
            is_special = bool(due_ns or group)
            if is_special:
                self.special[index] = Special(priority, due_ns, group)
            feeds = by_topic.get(envelope.topic or "", ())
            if is_special or priority:
                everything.add_one(index, priority=priority, special=is_special)
                for feed in feeds:
                    feed.add_one(index, priority=priority, special=is_special)
            else:
                everything.add(index, index + 1)
                for feed in feeds:
                    feed.add(index, index + 1)

    def _add_matches(self, feed: Feed, start: int, stop: int) -> None:
        lanes = self.everything.lanes
        if len(lanes) == 1 and not self.everything.special:
            feed.add(start, stop)
            return
        for index in range(start, stop):
            special = self.special.get(index)
            if special is not None:
                feed.add_one(index, priority=special.priority, special=True)
                continue
            priority = next(p for p, lane in lanes.items() if index in lane)
            if priority:
                feed.add_one(index, priority=priority, special=False)
            else:
                feed.add(index, index + 1)

    def open(self, filter_text: str | None, feed_id: int, since: int) -> Feed:
        """The shared feed of a filter, created if need be: a new one begins at ``since``."""
        if filter_text is None:
            return self.everything
        feed = self.by_filter.get(filter_text)
        if feed is None:
            compiled = compile_filter(filter_text)
            feed = self.by_filter[filter_text] = Feed(id=feed_id, filter=compiled, since=since)
            if compiled.is_topic_only:
                self.by_topic.setdefault(compiled.topic or "", []).append(feed)
            else:
                self.others.append(feed)
        return feed

    def drop(self, feed: Feed) -> None:
        """Remove a feed that nobody reads any more. The feed of everything stays."""
        if feed.filter is None:
            return
        del self.by_filter[feed.filter.source]
        if feed.filter.is_topic_only:
            feeds = self.by_topic[feed.filter.topic or ""]
            feeds.remove(feed)
            if not feeds:
                del self.by_topic[feed.filter.topic or ""]
        else:
            self.others.remove(feed)
