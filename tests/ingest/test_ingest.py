"""The ingest queue: the acceptance list of its document, and what its words promise beyond it."""

from __future__ import annotations

import asyncio
import inspect
import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
import pytest

import penstock
from penstock import ingest
from penstock.broker import Broker
from penstock.core.message import Delivery
from penstock.core.retry import Backoff
from penstock.errors import InvalidArgument, InvalidName, StoreUnavailable
from penstock.ingest import IngestMessage, IngestQueue, IngestSettings

WHEN = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
AT_ONCE = IngestSettings(backoff=Backoff())
LEASE_SECONDS = 1.0


def message(number: int, tenant: str = "clinic") -> IngestMessage:
    return IngestMessage(file_path=f"/in/{number}", tenant_code=tenant, received_at=WHEN)


class Handled:
    """A handler that keeps what it was given, and fails as often as it is told to."""

    def __init__(self, failures: int = 0) -> None:
        self.batches: list[list[IngestMessage]] = []
        self.failures = failures

    async def __call__(self, batch: Sequence[IngestMessage]) -> None:
        if self.failures:
            self.failures -= 1
            raise ValueError("the disk is full")
        self.batches.append(list(batch))

    @property
    def paths(self) -> list[str]:
        return [one.file_path for batch in self.batches for one in batch]


async def drain(queue: IngestQueue[IngestMessage], handled: Handled) -> None:
    while await queue.consume(100, handled, wait_seconds=0):
        pass


async def test_ten_published_are_ten_pending_and_none_once_they_are_handled(store_url: str) -> None:
    async with ingest.open(IngestMessage, store_url) as queue:
        for number in range(10):
            await queue.publish(message(number))
        assert await queue.pending_count("clinic") == 10
        handled = Handled()
        assert await queue.consume(10, handled) == 10
        assert handled.batches == [[message(number) for number in range(10)]]
        assert await queue.pending_count("clinic") == 0


async def test_what_a_killed_process_took_comes_again_to_another(store_url: str) -> None:
    settings = IngestSettings(lease_seconds=LEASE_SECONDS)
    async with ingest.open(IngestMessage, store_url, settings) as queue:
        await queue.publish_many([message(number) for number in range(5)])
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.ingest.consumer", store_url, str(LEASE_SECONDS)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"5\n"  # it has them, and has acknowledged none
    process.send_signal(signal.SIGKILL)
    await process.wait()
    async with ingest.open(IngestMessage, store_url, settings) as queue:
        assert await queue.pending_count("clinic") == 5
        handled = Handled()
        assert await queue.consume(10, handled, wait_seconds=20) == 5
        assert handled.paths == [f"/in/{number}" for number in range(5)]
        assert await queue.pending_count("clinic") == 0


async def test_what_a_handler_failed_at_comes_again(
    store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with ingest.open(IngestMessage, store_url, AT_ONCE) as queue:
        await queue.publish(message(1))
        handled = Handled(failures=2)
        assert await queue.consume(10, handled) == 0
        assert await queue.consume(10, handled) == 0
        assert await queue.pending_count("clinic") == 1
        assert await queue.consume(10, handled) == 1
        assert handled.paths == ["/in/1"]
    assert "the disk is full" in caplog.text


async def test_what_fails_too_often_is_a_dead_letter_with_the_error(store_url: str) -> None:
    settings = IngestSettings(backoff=Backoff(), max_deliveries=2)
    async with ingest.open(IngestMessage, store_url, settings) as queue:
        await queue.publish(message(1))
        handled = Handled(failures=2)
        await drain(queue, handled)
        await drain(queue, handled)
        assert await queue.pending_count("clinic") == 0
    async with penstock.open(store_url) as broker:
        (letter,) = await broker.dead_letters("ingest-clinic")
        assert letter.dead_letter is not None
        assert letter.dead_letter.reason == "ValueError: the disk is full"


@pytest.mark.parametrize("name", ["consume", "consume_for_tenant"])
def test_a_consumer_waits_for_two_seconds_unless_it_is_told_otherwise(name: str) -> None:
    parameters = inspect.signature(getattr(IngestQueue, name)).parameters
    assert parameters["wait_seconds"].default == 2


async def test_a_wait_ends_without_a_message(store_url: str) -> None:
    async with ingest.open(IngestMessage, store_url) as queue:
        handled = Handled()
        assert await queue.consume(10, handled, wait_seconds=0.01) == 0
        assert await queue.consume_for_tenant("clinic", 10, handled, wait_seconds=0.01) == 0
        assert handled.batches == []


async def test_tenants_take_turns_however_much_one_of_them_has(store_url: str) -> None:
    async with ingest.open(IngestMessage, store_url) as queue:
        await queue.publish_many([message(number, "busy") for number in range(40)])
        await queue.publish_many([message(number, "calm") for number in range(2)])
        handled = Handled()
        for _ in range(4):
            await queue.consume(10, handled)
        turns = [(batch[0].tenant_code, len(batch)) for batch in handled.batches]
        assert turns == [("busy", 10), ("calm", 2), ("busy", 10), ("busy", 10)]


async def test_tenants_that_another_process_has_published_for_take_turns_from_the_start(
    store_url: str,
) -> None:
    async with ingest.open(IngestMessage, store_url) as queue:
        await queue.publish_many([message(number, "busy") for number in range(40)])
        await queue.publish_many([message(number, "calm") for number in range(2)])
    async with ingest.open(IngestMessage, store_url) as queue:
        handled = Handled()
        for _ in range(4):
            await queue.consume(10, handled)
        turns = [(batch[0].tenant_code, len(batch)) for batch in handled.batches]
        assert turns == [("busy", 10), ("calm", 2), ("busy", 10), ("busy", 10)]


async def test_a_new_tenant_gets_its_turn_while_another_has_work_left(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.ingest.queue._LOOK_SECONDS", 0.0)
    async with penstock.open(store_url) as broker:
        producer, consumer = (IngestQueue(broker, IngestMessage) for _ in range(2))
        await producer.publish_many([message(number, "busy") for number in range(40)])
        handled = Handled()
        await consumer.consume(10, handled)
        await producer.publish(message(0, "late"))
        for _ in range(2):
            await consumer.consume(10, handled)
        turns = [batch[0].tenant_code for batch in handled.batches]
        assert turns == ["busy", "busy", "late"]


async def test_a_tenant_whose_subscription_was_deleted_gets_another_and_stops_nobody(
    store_url: str,
) -> None:
    async with penstock.open(store_url) as broker:
        queue = IngestQueue(broker, IngestMessage)
        await queue.publish_many([message(1, "a"), message(2, "b")])
        # Given a tenant whose subscription is deleted, before and after it was used
        await broker.delete_subscription("ingest-a", "default")
        handled = Handled()
        await drain(queue, handled)
        await drain(queue, handled)
        assert sorted(handled.paths) == ["/in/1", "/in/2"]
        await broker.delete_subscription("ingest-a", "default")
        await queue.publish(message(3, "a"))
        # Then everything that the queue still has is handled
        assert await queue.consume_for_tenant("a", 10, handled) == 2
        assert handled.paths[2:] == ["/in/1", "/in/3"]


async def test_one_tenant_can_be_consumed_alone(store_url: str) -> None:
    async with ingest.open(IngestMessage, store_url) as queue:
        await queue.publish_many([message(1, "a"), message(2, "b")])
        handled = Handled()
        assert await queue.consume_for_tenant("b", 10, handled) == 1
        assert handled.paths == ["/in/2"]
        assert (await queue.pending_count("a"), await queue.pending_count("b")) == (1, 0)


async def test_a_tenant_that_never_published_can_be_waited_for(store_url: str) -> None:
    async with ingest.open(IngestMessage, store_url) as queue:
        handled = Handled()
        consuming = asyncio.create_task(
            queue.consume_for_tenant("late", 10, handled, wait_seconds=20)
        )
        await asyncio.sleep(0)
        await queue.publish(message(7, "late"))
        assert await consuming == 1
        assert await queue.pending_count("nobody") == 0


async def test_waiting_consumers_are_told_of_news(store_url: str) -> None:
    async with ingest.open(IngestMessage, store_url) as queue:
        await queue.publish(message(0))
        handled = Handled()
        await drain(queue, handled)
        consuming = asyncio.create_task(queue.consume(10, handled, wait_seconds=20))
        await asyncio.sleep(0)
        await queue.publish(message(1))
        assert await consuming == 1


async def test_a_handler_that_is_slower_than_its_lease_keeps_its_batch(store_url: str) -> None:
    settings = IngestSettings(lease_seconds=1.5)
    async with ingest.open(IngestMessage, store_url, settings) as queue:
        await queue.publish(message(1))
        begun, finish = asyncio.Event(), asyncio.Event()

        async def slow(batch: Sequence[IngestMessage]) -> None:
            begun.set()
            await finish.wait()

        consuming = asyncio.create_task(queue.consume(10, slow))
        await begun.wait()
        assert await queue.consume(10, Handled(), wait_seconds=2.5) == 0
        finish.set()
        assert await consuming == 1
        assert await queue.pending_count("clinic") == 0


async def test_an_extension_that_fails_is_tried_again_before_the_lease_ends(
    store_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings = IngestSettings(lease_seconds=2)
    async with ingest.open(IngestMessage, store_url, settings) as queue:
        await queue.publish(message(1))
        begun, finish = asyncio.Event(), asyncio.Event()
        settle = Broker.settle
        failures = iter([StoreUnavailable("away for a moment")])

        async def settle_when_it_is_back(*args: object, **more: object) -> object:
            for failure in failures:
                raise failure
            return await settle(*args, **more)  # type: ignore[arg-type]

        async def slow(batch: Sequence[IngestMessage]) -> None:
            begun.set()
            await finish.wait()

        # Given a handler that takes longer than its lease, and a store that fails to extend it once
        monkeypatch.setattr(Broker, "settle", settle_when_it_is_back)
        consuming = asyncio.create_task(queue.consume(10, slow))
        await begun.wait()
        # Then nobody else gets the message meanwhile
        assert await queue.consume(10, Handled(), wait_seconds=3) == 0
        finish.set()
        assert await consuming == 1
    assert "away for a moment" in caplog.text


async def test_a_plain_function_is_called_in_a_thread(store_url: str) -> None:
    seen: list[IngestMessage] = []
    async with ingest.open(IngestMessage, store_url) as queue:
        await queue.publish(message(1))
        assert await queue.consume(1, seen.extend) == 1
    assert seen == [message(1)]


async def test_a_consumer_that_is_cancelled_gives_its_batch_back(store_url: str) -> None:
    async with ingest.open(IngestMessage, store_url) as queue:
        await queue.publish(message(1))
        begun = asyncio.Event()

        async def hang(batch: Sequence[IngestMessage]) -> None:
            begun.set()
            await asyncio.Event().wait()

        consuming = asyncio.create_task(queue.consume(10, hang))
        await begun.wait()
        consuming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await consuming
        assert await queue.consume(10, Handled(), wait_seconds=0) == 1


async def test_a_body_that_cannot_be_read_holds_up_nobody(store_url: str) -> None:
    settings = IngestSettings(backoff=Backoff(), max_deliveries=1)
    async with ingest.open(IngestMessage, store_url, settings) as queue:
        await queue.publish(message(1))
    async with penstock.open(store_url) as broker:
        await broker.publish("ingest-clinic", [b'{"filePath": 7}'])
    async with ingest.open(IngestMessage, store_url, settings) as queue:
        assert await queue.consume(10, Handled()) == 1
        assert await queue.pending_count("clinic") == 0
    async with penstock.open(store_url) as broker:
        (letter,) = await broker.dead_letters("ingest-clinic")
        assert letter.body == b'{"filePath": 7}'


async def test_a_tenant_that_was_removed_can_come_back(store_url: str) -> None:
    # Given a process that has published for a tenant, whose queue is deleted by another
    async with penstock.open(store_url) as broker:
        queue = IngestQueue(broker, IngestMessage)
        await queue.publish(message(1))
        await broker.delete_queue("ingest-clinic")
        # When it publishes again
        await queue.publish(message(2))
        # Then the tenant is there again
        handled = Handled()
        assert await queue.consume(10, handled, wait_seconds=0) == 1
        assert handled.paths == ["/in/2"]


@pytest.mark.parametrize("is_back", [False, True], ids=["gone", "back"])
@pytest.mark.parametrize("fails", [False, True], ids=["handled", "failed"])
async def test_a_tenant_that_is_removed_while_its_batch_is_handled_ends_no_consumer(
    store_url: str, fails: bool, is_back: bool
) -> None:
    async with penstock.open(store_url) as broker:
        queue = IngestQueue(broker, IngestMessage)
        await queue.publish(message(1))

        async def handle(batch: Sequence[IngestMessage]) -> None:
            await broker.delete_queue("ingest-clinic")
            if is_back:
                await queue.publish(message(2))
            if fails:
                raise ValueError("the tenant is gone")

        assert await queue.consume(10, handle) == (0 if fails else 1)
        # Others are consumed as before.
        await queue.publish(message(3, "other"))
        handled = Handled()
        await drain(queue, handled)
        assert handled.paths == (["/in/2", "/in/3"] if is_back else ["/in/3"])


async def test_whoever_waits_for_a_tenant_that_is_removed_goes_on_waiting(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with penstock.open(store_url) as broker:
        queue = IngestQueue(broker, IngestMessage)
        looked = 0
        has_looked = asyncio.Event()
        receive = broker.receive

        async def counted(name: str, *, limit: int) -> list[Delivery]:
            nonlocal looked
            looked += 1
            has_looked.set()
            return await receive(name, limit=limit)

        monkeypatch.setattr(broker, "receive", counted)
        handled = Handled()
        consuming = asyncio.create_task(
            queue.consume_for_tenant("clinic", 10, handled, wait_seconds=20)
        )
        await has_looked.wait()
        # When the tenant is removed during the wait
        await broker.delete_queue("ingest-clinic")
        for _ in range(200):
            await asyncio.sleep(0)
        # Then it is looked for again, but not over and over
        assert looked <= 4
        await queue.publish(message(7))
        assert await consuming == 1


async def test_the_events_of_a_tenant_are_no_tenant(store_url: str) -> None:
    async with penstock.open(store_url) as broker:
        queue = IngestQueue(broker, IngestMessage)
        await queue.publish(message(1))
        await broker.alter_queue("ingest-clinic", events=True)
        await queue.publish(message(2))
        handled = Handled()
        await drain(queue, handled)
        assert handled.paths == ["/in/1", "/in/2"]
        assert await queue.tenants() == ["clinic"]


class Scan(msgspec.Struct, frozen=True, kw_only=True):
    """A message of another kind."""

    tenant_code: str
    pages: list[int]


async def test_any_typed_message_with_a_tenant_will_do(store_url: str) -> None:
    async with ingest.open(Scan, store_url) as queue:
        await queue.publish(Scan(tenant_code="a", pages=[1, 2]))
        seen: list[Scan] = []
        await queue.consume(1, seen.extend)
        assert seen == [Scan(tenant_code="a", pages=[1, 2])]
        with pytest.raises(InvalidArgument, match="takes Scan"):
            await queue.publish(message(1))  # type: ignore[arg-type]


async def test_a_tenant_whose_name_no_queue_can_have_is_refused_before_anything_is_stored(
    store_url: str,
) -> None:
    async with ingest.open(IngestMessage, store_url) as queue:
        with pytest.raises(InvalidName):
            await queue.publish_many([message(1, "good"), message(2, "not good")])
        assert await queue.tenants() == []
        with pytest.raises(InvalidArgument):
            await queue.publish(message(1, ""))


def test_a_message_has_a_form_of_texts() -> None:
    texts = message(1).to_map()
    assert texts == {
        "filePath": "/in/1",
        "tenantCode": "clinic",
        "receivedAt": "2026-05-04T03:02:01Z",
    }
    assert IngestMessage.from_map(texts) == message(1)
    with pytest.raises(InvalidArgument, match="tenantCode"):
        IngestMessage.from_map({"filePath": "x", "receivedAt": "2026-05-04T03:02:01Z"})
    with pytest.raises(InvalidArgument, match="aware"):
        IngestMessage(file_path="x", tenant_code="y", received_at=WHEN.replace(tzinfo=None))
