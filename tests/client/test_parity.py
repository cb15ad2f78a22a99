"""Client and broker take the same calls, so that a program can move from one to the other."""

from __future__ import annotations

import inspect
import typing
from datetime import datetime
from typing import Any

import msgspec
import pytest

from penstock import AsyncClient, Broker, Client, open
from penstock import client as served
from penstock.core.message import Delivery, Message, NewMessage, ViewedMessage
from penstock.core.publishing import PublishResult


def _calls(of: type) -> set[str]:
    return {
        name
        for name, method in vars(of).items()
        if inspect.iscoroutinefunction(method) and not name.startswith("_")
    }


CALLS = sorted(_calls(AsyncClient) & _calls(Broker))

# For those who run the broker: a server's own work, and bulk reads, which HTTP has as streams. Of
# several settlements at once a client makes one request by itself.
ONLY_THE_BROKER = {"callbacks", "known_stats", "names", "scan", "settle", "wait"}
# The server itself and its users, of whom an embedded queue has none.
ONLY_THE_CLIENT = {
    *("health", "log_in", "users", "add_user", "alter_user", "remove_user"),
    "cut_off",
}
# A server bounds its answers itself, and saves itself the work for what it does not show.
# Its `/queue` API creates groups whose `default` is as the server's settings say.
OF_THE_BROKER = {
    "create_queue": {"default"},
    "receive": {"most_bytes"},
    "poll": {"most_bytes"},
    "queue_stats": {"only"},
}
# A client's messages are read from JSON or MessagePack, and name their subscription because a
# worker passes them on. The ids of a publish are made from its answer when they are looked at.
COUNTERPARTS: dict[type, type] = {
    Message: served.Message,
    Delivery: served.Delivery,
    ViewedMessage: served.ViewedMessage,
    PublishResult: served.Published,
}
OF_THE_CLIENT = {"body_base64", "subscription", "is_run"}
# How the broker keeps its messages and results, of which the attributes above are made.
KEPT = {
    *("created_ns", "duplicates", "has_duplicates", "indexes"),
    *("salt", "envelope", "epoch", "subscription_id", "of", "split"),
    *("created_at_ns", "deadline_ns", "leased_until_ns"),
}


def test_each_has_every_call_of_the_other_but_for_these() -> None:
    assert _calls(Broker) - _calls(AsyncClient) == ONLY_THE_BROKER
    assert _calls(AsyncClient) - _calls(Broker) == ONLY_THE_CLIENT


@pytest.mark.parametrize("name", CALLS)
def test_a_call_takes_the_same_arguments_with_the_same_defaults(name: str) -> None:
    embedded = inspect.signature(getattr(Broker, name)).parameters
    taken = inspect.signature(getattr(AsyncClient, name)).parameters

    own = OF_THE_BROKER.get(name, set())
    assert {key: (one.default, one.kind) for key, one in taken.items()} == {
        key: (one.default, one.kind) for key, one in embedded.items() if key not in own
    }
    assert list(taken) == [key for key in embedded if key not in own]


def _as_served(kind: Any) -> Any:
    """The type of an answer, as a client has it."""
    if inner := typing.get_args(kind):
        inner = tuple(map(_as_served, inner))
        outer = typing.get_origin(kind)
        return outer[inner] if outer is list else typing.Union[inner]  # noqa: UP007
    return COUNTERPARTS.get(kind, kind)


@pytest.mark.parametrize("name", CALLS)
def test_a_call_returns_the_same(name: str) -> None:
    embedded, asynchronous, synchronous = (
        typing.get_type_hints(getattr(one, name))["return"] for one in (Broker, AsyncClient, Client)
    )

    assert asynchronous == _as_served(embedded)
    assert synchronous == asynchronous


@pytest.mark.parametrize("kind", COUNTERPARTS, ids=lambda kind: kind.__name__)
def test_a_class_of_the_client_has_the_attributes_of_the_brokers(kind: type) -> None:
    embedded, own = (
        {name for name in dir(one) if not name.startswith("_")}
        for one in (kind, COUNTERPARTS[kind])
    )

    assert embedded - own <= KEPT
    assert own - embedded <= OF_THE_CLIENT


def test_most_of_the_broker_is_there() -> None:
    assert {"publish", "receive", "ack", "nack", "replay", "create_queue", "seek"} <= set(CALLS)
    assert len(CALLS) >= 35


def test_the_synchronous_client_has_every_call_of_the_asynchronous_one() -> None:
    assert _calls(AsyncClient) - set(dir(Client)) == {"cut_off"}


async def _story(queues: Any, queue: str) -> list[Any]:
    """The answers to one call after the other, on a new queue."""
    said: list[Any] = []
    said.append(await queues.create_queue(queue, max_messages=9))
    said.append(await queues.ensure_queue(queue, max_messages=9))
    said.append(await queues.alter_queue(queue, max_messages=8))
    said.append(await queues.create_subscription(queue, "z", max_deliveries=1))
    said.append(await queues.ensure_subscription(queue, "b", after=["z"]))
    said.append(await queues.ensure_subscription(queue, "b", after=["z"]))
    said.append(await queues.alter_subscription(queue, "b", lease_seconds=7))
    said.append(await queues.pause(queue, "b"))
    said.append(await queues.resume(queue, "b"))
    new = NewMessage(body=b'{"a": 1}', topic="t", attributes={"k": "v"}, priority=3)
    said.append(list(await queues.publish(queue, [new, b"\xff", b"c"])))
    said.append(await queues.held(queue, "b"))
    said.append(await queues.held_messages(queue, "b"))
    said.append(await queues.receive(queue, subscription="z", limit=9))
    said.append(await queues.extend(queue, said[-1][2:], 5, "z", further=True))
    said.append(await queues.ack(queue, said[-2][:1], "z"))
    said.append(await queues.nack(queue, said[-3][1:2], "z", reason="odd"))
    said.append(await queues.give_back(queue, said[-4][2:], "z"))
    said.append(await queues.poll(queue, "z", start=0, count=9))
    said.append(await queues.ack_up_to(queue, 1))
    said.append(await queues.release(queue, "b", [1]))
    said.append(await queues.seek(queue, "earliest", "b"))
    said.append(await queues.view(queue, "z"))
    said.append(await queues.read(queue))
    said.append(await queues.find(queue, [said[-1][0].id, "none"]))
    said.append(await queues.get(queue, said[-2][1].id))
    said.append(await queues.dead_letters(queue))
    said.append(await queues.graph(queue))
    said.append(await queues.test_filter(queue, "priority > 2"))
    said.append([one.name for one in await queues.queues(after=queue[:-1], limit=1)])
    said.append(await queues.queue_stats(queue))
    said.append(await queues.subscriptions(queue))
    said.append(await queues.subscription_stats(queue, "b"))
    said.append(await queues.purge_queue(queue))
    said.append(await queues.replay(queue))
    said.append(await queues.discard(queue))
    said.append(await queues.delete_subscription(queue, "b"))
    said.append(await queues.delete_queue(queue))
    return [_seen(one) for one in said]


def _seen(answer: Any) -> Any:
    """Without what differs from one queue to the next: times, and ids and receipts."""
    if isinstance(answer, list):
        return [_seen(one) for one in answer]
    if not isinstance(answer, msgspec.Struct):
        return None if isinstance(answer, datetime) else answer
    skipped = {*OF_THE_CLIENT, *KEPT, "id", "receipt", "failed_at_ns", "oldest_unacked_seconds"}
    names = [name for name in dir(answer) if not name.startswith("_") and name not in skipped]
    found = {name: getattr(answer, name) for name in names}
    return {name: _seen(one) for name, one in found.items() if not callable(one)}


async def test_the_same_calls_have_the_same_answers(client: AsyncClient, queue: str) -> None:
    async with open("memory:") as broker:
        embedded = await _story(broker, f"{queue}-same")

    assert await _story(client, f"{queue}-same") == embedded


async def test_a_body_is_read_in_the_same_ways(client: AsyncClient, queue: str) -> None:
    bodies = [b'{"a": 1}', b"\xff", b""]
    async with open("memory:") as broker:
        for one in (broker, client):
            await one.ensure_queue(queue)
            await one.publish(queue, bodies)
            found = await one.read(queue)
            assert [message.text for message in found] == ['{"a": 1}', None, ""]
            assert found[0].json() == {"a": 1}
            with pytest.raises(msgspec.DecodeError):
                found[1].json()
