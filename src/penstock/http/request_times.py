"""How long requests and syncs of the disk took, for Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from prometheus_client.core import HistogramMetricFamily

__all__ = ["RequestTimes", "SyncTimes", "Times"]

_BOUNDS = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1),
    *(0.25, 0.5, 1.0, 2.5, 5.0, 10.0, float("inf")),
)
_LABELS = ("method", "path", "status")


class Times:
    """A histogram. The library's own takes a lock for each of its numbers."""

    __slots__ = ("_counts", "_seconds")

    def __init__(self) -> None:
        self._counts = [0] * len(_BOUNDS)
        self._seconds = 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(_BOUNDS, seconds)] += 1
        self._seconds += seconds

    def buckets(self) -> tuple[list[tuple[str, float]], float]:
        """For each bound, how many took at most that long; and how long all took together."""
        found: list[tuple[str, float]] = []
        below = 0
        for bound, count in zip(_BOUNDS, self._counts, strict=True):
            below += count
            found.append(("+Inf" if bound == _BOUNDS[-1] else str(bound), below))
        return found, self._seconds


class RequestTimes:
    """A collector with a histogram for each route and status, never for a path that was made up."""

    def __init__(self) -> None:
        self._times: dict[tuple[str, str, str], Times] = {}

    def of(self, method: str, path: str, status: int) -> Times:
        return self._times.setdefault((method, path, str(status)), Times())

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(
            "penstock_request_seconds", "Time to answer a request", labels=_LABELS
        )
        for labels, times in self._times.items():
            family.add_metric(labels, *times.buckets())
        yield family


class SyncTimes(Times):
    """A collector with one histogram. The thread that writes the log adds to it."""

    __slots__ = ()

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily("penstock_sync_seconds", "Time of a sync of the disk")
        family.add_metric((), *self.buckets())
        yield family
