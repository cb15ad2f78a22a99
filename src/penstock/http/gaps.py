"""What is not among the figures for Prometheus, because it is away."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric

from penstock.core.stats import KnownStats

__all__ = ["Gaps"]


class Gaps:
    """A collector. ``services`` are the store and what it needs, each with why it is away."""

    def __init__(self, known: KnownStats, services: Mapping[str, str | None]) -> None:
        self._known = known
        self._services = services

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily(
            "penstock_service_up",
            "1 if the store, or a server that it needs, does what it is asked, 0 if not",
            labels=["service"],
        )
        for name, why in self._services.items():
            up.add_metric([name], 1 if why is None else 0)
        yield up
        yield GaugeMetricFamily(
            "penstock_queues_missing",
            "Queues that are left out of these figures, because their server is away",
            value=len(self._known.missing),
        )
        yield GaugeMetricFamily(
            "penstock_queue_list_up",
            "0 if the list of queues cannot be read, so that some may be left out unnamed",
            value=1 if self._known.unlisted is None else 0,
        )
