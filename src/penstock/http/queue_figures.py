"""Figures of queues and subscriptions, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from penstock.core.stats import QueueStats

__all__ = ["QueueFigures"]

_OPENNESS = {"closed": 0.0, "half_open": 0.5, "open": 1.0}


class QueueFigures:
    """A collector of what the stats said at one moment."""

    def __init__(self, queues: list[QueueStats]) -> None:
        self._queues = queues

    def collect(self) -> Iterator[Metric]:
        messages = GaugeMetricFamily(
            "penstock_queue_messages", "Messages that a queue holds", labels=["queue"]
        )
        size = GaugeMetricFamily(
            "penstock_queue_bytes", "Bytes of the messages that a queue holds", labels=["queue"]
        )
        letters = GaugeMetricFamily(
            "penstock_queue_dead_letters", "Dead letters that nobody has taken", labels=["queue"]
        )
        labels = ["queue", "subscription"]
        unsettled = GaugeMetricFamily(
            "penstock_subscription_messages",
            "Unsettled messages of a subscription, by where they are",
            labels=[*labels, "state"],
        )
        age = GaugeMetricFamily(
            "penstock_subscription_oldest_seconds",
            "Age of the oldest unsettled message",
            labels=labels,
        )
        went = CounterMetricFamily(
            "penstock_subscription_events",
            "What happened to messages of a subscription",
            labels=[*labels, "event"],
        )
        calls = CounterMetricFamily(
            "penstock_callback_calls",
            "Callbacks since the server started, by whether they were answered well",
            labels=[*labels, "result"],
        )
        circuit = GaugeMetricFamily(
            "penstock_callback_circuit_open",
            "1 while callbacks are held back after repeated failures, 0.5 while one is tried",
            labels=labels,
        )
        for queue in self._queues:
            messages.add_metric([queue.name], queue.messages)
            size.add_metric([queue.name], queue.bytes)
            letters.add_metric([queue.name], queue.dead_letters)
            for one in queue.subscriptions:
                names = [queue.name, one.name]
                for state in ("ready", "in_flight", "delayed", "parked", "held"):
                    unsettled.add_metric([*names, state], getattr(one, state))
                age.add_metric(names, one.oldest_unacked_seconds or 0)
                for event in ("delivered", "redelivered", "acked", "nacked", "leases_expired"):
                    went.add_metric([*names, event], getattr(one, event))
                for event in ("expired", "dead_lettered", "replayed", "discarded", "purged"):
                    went.add_metric([*names, event], getattr(one, event))
                callback = one.callback
                if callback is not None:
                    calls.add_metric([*names, "success"], callback.calls - callback.failures)
                    calls.add_metric([*names, "failure"], callback.failures)
                    circuit.add_metric(names, _OPENNESS[callback.circuit])
        yield from (messages, size, letters, unsettled, age, went, calls, circuit)
