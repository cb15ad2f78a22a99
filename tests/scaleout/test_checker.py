"""What the checker excuses while Redis is lost and rebuilt, and what it does not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.crash.report import SECOND
from tests.scaleout.run import check
from tests.scaleout.story import Story


@pytest.fixture
def story() -> Story:
    """Message 0 is stored and consumed."""
    story = Story()
    story.store(0, index=0)
    story.consume(0, index=0)
    return story


@contextmanager
def violation(invariant: str) -> Iterator[None]:
    with pytest.raises(AssertionError, match=f"^{invariant}:"):
        yield


# What is excused.


async def test_an_ack_from_before_the_loss_may_come_undone(story: Story) -> None:
    with story.rebuild():
        story.consume(0, index=0)
    await check(story.lines)


async def test_a_lease_may_end_at_every_rebuild(story: Story) -> None:
    story.store(1, index=1)
    with story.rebuild():
        story.receive(1, index=1)
        story.receive(1, index=1)
    story.consume(1, index=1)
    await check(story.lines)


async def test_an_index_of_a_publish_under_way_may_be_used_by_another(story: Story) -> None:
    # Given a message that was seen before its publish was answered, and is lost
    first = story.publish(1)
    story.receive(1, index=1)
    with story.rebuild():
        # When another one gets its index, and it another index
        story.store(2, index=1)
        story.published(first, index=2, attempt=1)
    story.consume(2, index=1)
    story.consume(1, index=2, attempt=1)
    await check(story.lines)


async def test_a_publish_that_begins_and_ends_meanwhile_may_be_stored_twice(story: Story) -> None:
    with story.rebuild():
        call = story.publish(1)
        story.consume(1, index=1)
        story.published(call, index=2, attempt=1)
    # Both copies are there for good
    story.receive(1, index=1, subscription=SECOND)
    story.consume(1, index=2, attempt=1)
    await check(story.lines)


async def test_what_was_seen_before_its_publish_was_answered_may_come_again(story: Story) -> None:
    with story.rebuild():
        call = story.publish(1)
        story.consume(1, index=1)
        story.published(call, index=1)
        story.consume(1, index=1)
    await check(story.lines)


# What is not.


async def test_a_message_is_lost_that_was_answered_before(story: Story) -> None:
    story.store(1, index=1)
    with story.rebuild():
        pass
    with violation("lost"):
        await check(story.lines)


async def test_a_message_is_lost_whose_index_was_settled_for_another(story: Story) -> None:
    # Given a message that was consumed, though its publish is under way
    with story.rebuild():
        first = story.publish(1)
        story.consume(1, index=1)
        # When another one is answered with its index, and never delivered
        story.store(2, index=1)
        story.published(first, index=2, attempt=1)
        story.consume(1, index=2, attempt=1)
    with violation("lost"):
        await check(story.lines)


async def test_a_message_comes_again_that_was_acked_after_the_loss(story: Story) -> None:
    with story.rebuild():
        story.store(1, index=1)
        story.consume(1, index=1)
        story.receive(1, index=1)
    with violation("delivered after its ack"):
        await check(story.lines)


async def test_a_message_comes_again_that_was_acked_after_the_rebuild(story: Story) -> None:
    story.store(1, index=1)
    with story.rebuild():
        story.receive(1, index=1)
    story.consume(1, index=1)
    story.receive(1, index=1)
    with violation("delivered after its ack"):
        await check(story.lines)


async def test_two_have_a_message_after_the_rebuild(story: Story) -> None:
    story.store(1, index=1)
    with story.rebuild():
        story.receive(1, index=1)
    story.receive(1, index=1)
    story.receive(1, index=1)
    with violation("two live leases"):
        await check(story.lines)


async def test_a_message_moves_that_was_answered_before(story: Story) -> None:
    story.store(1, index=1)
    with story.rebuild():
        story.consume(1, index=2)
    with violation("stored twice"):
        await check(story.lines)


async def test_an_index_changes_after_it_was_answered(story: Story) -> None:
    with story.rebuild():
        story.store(1, index=1)
        other = story.publish(2)
        story.receive(2, index=1)
        story.published(other, index=2)
    with violation("stable indexes"):
        await check(story.lines)


async def test_an_index_changes_after_the_rebuild(story: Story) -> None:
    # Given two publishes that outlast it
    with story.rebuild():
        story.publish(1)
        story.publish(2)
    # When the same index shows one and then the other
    story.receive(1, index=1)
    story.receive(2, index=1)
    with violation("stable indexes"):
        await check(story.lines)


async def test_a_message_is_stored_twice_whose_publish_began_after_the_rebuild(
    story: Story,
) -> None:
    with story.rebuild():
        pass
    story.store(1, index=1)
    story.receive(1, index=2, attempt=1)
    with violation("stored twice"):
        await check(story.lines)
