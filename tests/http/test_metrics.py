"""``/metrics``."""

from __future__ import annotations

import asyncio

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from penstock.broker import Broker
from penstock.core.callback import CallbackState
from penstock.http.queue_figures import queue_figures
from penstock.storage.memory import MemoryStore
from tests.http.client import Client


def samples(client: Client) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    answer = client.ask("GET", "/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return parse(answer.body)


def parse(body: bytes) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    families = text_string_to_metric_families(body.decode())
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def test_the_figures_of_a_queue_can_be_read_by_prometheus(user: Client, group: str) -> None:
    ids = [user.push(group).json["id"] for _ in range(4)]
    user.pop(group)
    user.pop(group)
    user.ack(group, ids[0])
    found = samples(user)

    def figure(name: str, **labels: str) -> float:
        return found[name, frozenset({"queue": group, **labels}.items())]

    def messages(state: str) -> float:
        return figure("penstock_subscription_messages", subscription="default", state=state)

    def events(event: str) -> float:
        return figure("penstock_subscription_events_total", subscription="default", event=event)

    assert figure("penstock_queue_messages") == 4
    assert (messages("ready"), messages("in_flight")) == (2, 1)
    assert (events("delivered"), events("acked")) == (2, 1)
    assert figure("penstock_subscription_oldest_seconds", subscription="default") >= 0


def test_the_syncs_of_the_disk_are_timed(user: Client, group: str) -> None:
    def syncs() -> float:
        return samples(user)["penstock_sync_seconds_count", frozenset()]

    before = syncs()
    user.push(group)
    # At least one for the queue that it makes, and one for the message
    assert syncs() >= before + 2
    assert samples(user)["penstock_sync_seconds_sum", frozenset()] > 0


def test_requests_are_counted_by_route_and_never_by_what_a_client_makes_up(user: Client) -> None:
    for number in range(5):
        user.ask("GET", f"/made-up/{number}")
        user.ask("POST", f"/queue/ack?id=made-up-{number}", consumerGroup="metrics")
    found = samples(user)
    paths = {value for _, labels in found for key, value in labels if key == "path"}
    assert "/queue/ack" in paths
    assert not [path for path in paths if "made-up" in path]
    key = frozenset({"method": "POST", "path": "/queue/ack", "status": "404"}.items())
    assert found["penstock_request_seconds_count", key] >= 5


def test_every_figure_is_described_even_if_there_is_no_queue() -> None:
    text = b"".join(asyncio.run(queue_figures([]))).decode()
    described = {
        (family.name, family.type)
        for family in text_string_to_metric_families(text)
        if family.documentation
    }
    assert described == {
        ("penstock_queue_messages", "gauge"),
        ("penstock_queue_bytes", "gauge"),
        ("penstock_queue_dead_letters", "gauge"),
        ("penstock_subscription_messages", "gauge"),
        ("penstock_subscription_oldest_seconds", "gauge"),
        ("penstock_subscription_events", "counter"),
        ("penstock_callback_calls", "counter"),
        ("penstock_callback_circuit_open", "gauge"),
    }


async def test_how_the_calls_of_a_subscription_went_is_among_the_figures() -> None:
    # Given a subscription of which five calls were made, two of them in vain
    broker = Broker(MemoryStore())
    await broker.create_queue("orders")
    (queue,) = await broker.stats()
    state = CallbackState(
        circuit="half_open",
        calls=5,
        failures=2,
        failures_in_a_row=2,
        calls_under_way=1,
        last_status=500,
        last_error=None,
        last_success_at=None,
        next_call_at=None,
    )
    called = msgspec.structs.replace(queue.subscriptions[0], callback=state)

    # When its figures are asked for
    parts = await queue_figures([msgspec.structs.replace(queue, subscriptions=[called])])

    found = parse(b"".join(parts))
    names = {"queue": "orders", "subscription": "default"}

    def calls(result: str) -> float:
        labels = frozenset({**names, "result": result}.items())
        return found["penstock_callback_calls_total", labels]

    assert (calls("success"), calls("failure")) == (3, 2)
    assert found["penstock_callback_circuit_open", frozenset(names.items())] == 0.5
