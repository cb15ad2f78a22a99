from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from penstock import NewMessage
from penstock.client import AsyncClient
from penstock.client.connection import Answer
from penstock.client.errors import Unreachable
from penstock.client.publishing import pack_message
from penstock.client.retry import Failure
from penstock.client.transport import _Failed
from penstock.errors import (
    InvalidArgument,
    MessageTooLarge,
    PenstockError,
    QueueFull,
    QueueNotFound,
)
from tests.client.recorder import Recorder
from tests.client.server import Server


async def test_a_publish_states_index_id_and_durability(client: AsyncClient, queue: str) -> None:
    published = await client.publish(queue, [b"a", b"b"])

    assert [one.index for one in published] == [0, 1]
    assert published.durability == "memory"
    assert len(published) == 2
    assert (await client.get(queue, published[1].id)).body == b"b"


@pytest.mark.parametrize(
    "body", [b"", b"plain", "\u00e4\u20ac\U0001f600".encode(), b"\xff\x00", b'"\\\n']
)
async def test_a_body_comes_back_as_the_very_bytes_that_were_published(
    client: AsyncClient, queue: str, body: bytes
) -> None:
    await client.publish(queue, [body])

    (message,) = await client.read(queue)

    assert message.body == body
    assert message.content_type == "application/octet-stream"


async def test_everything_that_a_message_can_have_arrives(client: AsyncClient, queue: str) -> None:
    # Given
    sent = NewMessage(
        body=b'{"n": 1}',
        content_type="application/json",
        attributes={"Kind": "test", "empty": ""},
        topic="orders.eu",
        priority=7,
        not_before=datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
        expires_at=datetime(2040, 1, 1, tzinfo=UTC),
        group_key="g",
        dedup_key="d",
    )

    # When
    await client.publish(queue, [sent])
    (message,) = await client.read(queue)

    # Then
    assert message.json() == {"n": 1}
    assert message.queue == queue
    for name in NewMessage.__struct_fields__:
        assert getattr(message, name) == getattr(sent, name), name


async def test_concurrent_publishes_go_in_one_request_and_each_caller_gets_its_own(
    client: AsyncClient, queue: str, recorder: Recorder
) -> None:
    published = await asyncio.gather(
        *(client.publish(queue, [str(number).encode()]) for number in range(50))
    )

    assert [len(body["messages"]) for body in recorder.bodies("messages")] == [50]
    assert [one[0].index for one in published] == list(range(50))
    messages = await client.read(queue)
    assert [message.body for message in messages] == [str(n).encode() for n in range(50)]


async def test_a_bad_message_fails_alone(
    client: AsyncClient, queue: str, recorder: Recorder
) -> None:
    answers = await asyncio.gather(
        client.publish(queue, [b"good"]),
        client.publish(queue, [b"x" * (1024 * 1024 + 1)]),
        client.publish(queue, [NewMessage(body=b"x", priority=11)]),
        client.publish(queue, [NewMessage(body=b"x", not_before=datetime(2030, 1, 1))]),  # noqa: DTZ001
        client.publish(queue, [b"good too"]),
        return_exceptions=True,
    )

    kinds = [type(answer) for answer in answers if isinstance(answer, PenstockError)]
    assert kinds == [MessageTooLarge, InvalidArgument, InvalidArgument]
    assert len(recorder.bodies("messages")) == 1
    assert [message.body for message in await client.read(queue)] == [b"good", b"good too"]


async def test_when_a_queue_has_no_room_for_all_those_that_fit_are_stored(
    client: AsyncClient, queue: str
) -> None:
    await client.alter_queue(queue, max_messages=3)

    answers = await asyncio.gather(
        *(client.publish(queue, [b"x", b"y"]) for _ in range(3)),
        client.publish(queue, [b"z"]),
        return_exceptions=True,
    )

    assert [type(answer) for answer in answers if isinstance(answer, Exception)] == [QueueFull] * 2
    assert [message.body for message in await client.read(queue)] == [b"x", b"y", b"z"]


async def test_every_request_has_a_key_of_its_own_and_no_message_has(
    client: AsyncClient, queue: str, recorder: Recorder
) -> None:
    for _ in range(2):
        await client.publish(queue, [b"a", b"a", NewMessage(body=b"a", dedup_key="mine")])

    first, second = recorder.keys
    assert first
    assert second
    assert first != second
    assert [one.dedup_key for one in await client.read(queue)] == [None, None, "mine", None, None]


async def test_a_publish_that_is_sent_twice_is_stored_once(
    client: AsyncClient, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a server whose first answer gets lost
    transport = client._transport
    exchange = transport._exchange
    answers: list[Answer] = []

    async def lossy(*arguments: object) -> Answer:
        answers.append(await exchange(*arguments))  # type: ignore[arg-type]
        if len(answers) == 1:
            raise _lost()
        return answers[-1]

    monkeypatch.setattr(transport, "_exchange", lossy)

    # When
    published = await client.publish(queue, [b"once"])

    # Then
    assert len(answers) == 2
    assert published[0].index == 0
    assert not published[0].duplicate, "to the caller it is the first"
    assert len(await client.read(queue)) == 1


async def test_an_idempotency_key_holds_across_clients(
    server: Server, client: AsyncClient, queue: str
) -> None:
    first = await client.publish(queue, [b"a", b"b"], idempotency_key="job-7")
    async with server.client() as other:
        second = await other.publish(queue, [b"a", b"b"], idempotency_key="job-7")

    assert [one.id for one in second] == [one.id for one in first]
    assert [one.duplicate for one in second] == [True, True]


@pytest.mark.parametrize("key", ["", "x" * 256, "a\r\nb", " a", "\x00"])
async def test_a_key_that_is_none_is_refused_before_it_is_sent(
    client: AsyncClient, queue: str, recorder: Recorder, key: str
) -> None:
    with pytest.raises(InvalidArgument, match="idempotency key"):
        await client.publish(queue, [b"a"], idempotency_key=key)
    assert recorder.requests == []


async def test_without_idempotence_a_request_has_no_key(
    server: Server, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with server.client(is_idempotent=False) as client:
        recorder = Recorder(client, monkeypatch)
        await client.publish(queue, [b"a"])

    assert recorder.keys == [None]


async def test_a_publish_to_no_queue_says_so(client: AsyncClient) -> None:
    with pytest.raises(QueueNotFound) as caught:
        await client.publish("nowhere", [b"a"])
    assert caught.value.code == "queue_not_found"
    assert caught.value.__notes__[0].startswith("request id: ")


@pytest.mark.parametrize("messages", [b"body", "body", [], ["text"], [b"good", None]])
async def test_what_is_no_list_of_messages_is_refused_before_it_is_sent(
    client: AsyncClient, queue: str, recorder: Recorder, messages: list[bytes]
) -> None:
    with pytest.raises(InvalidArgument):
        await client.publish(queue, messages)
    assert recorder.requests == []


async def test_a_batch_of_the_largest_size_arrives(client: AsyncClient, queue: str) -> None:
    published = await client.publish(queue, [b"\xff" * (1024 * 1024)] * 15)

    assert published[14].index == 14


def test_a_plain_message_costs_little_more_than_its_body() -> None:
    assert pack_message(b"hello") == b"hello"
    assert pack_message(NewMessage(body=b"\xff")) == b"\xff"


def _lost() -> Exception:
    return _Failed(Failure(Unreachable("lost"), is_transient=True, may_be_done=True))
