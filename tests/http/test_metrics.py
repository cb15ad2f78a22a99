"""``/metrics``."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from tests.http.client import Client


def samples(client: Client) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    answer = client.ask("GET", "/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = text_string_to_metric_families(answer.body.decode())
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
