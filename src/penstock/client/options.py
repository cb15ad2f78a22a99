"""The options of a client and of a worker, for those that hand them on."""

from __future__ import annotations

import random
import ssl
from typing import TypedDict

from penstock.client.retry import Retry
from penstock.core.retry import Backoff

__all__ = ["ClientOptions", "WorkerOptions"]


class ClientOptions(TypedDict, total=False):
    """What `AsyncClient` takes besides its url."""

    username: str | None
    password: str | None
    token: str | None
    timeout_seconds: float
    connections: int
    linger_seconds: float
    requests: int
    retry: Retry | None
    is_idempotent: bool
    tls: ssl.SSLContext | None
    rng: random.Random | None


class WorkerOptions(TypedDict, total=False):
    """What `WorkerSettings` has besides its queue."""

    subscription: str
    concurrency: int
    prefetch: int | None
    lease_seconds: float
    wait_seconds: float
    backoff: Backoff | None
    stop_seconds: float
