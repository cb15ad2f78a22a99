"""Starting a query on a machine that may be slow."""

from __future__ import annotations

import time
from collections.abc import Callable

from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["start_patiently"]

# Spark gives a source's Python process ten seconds to start, and has no setting for that.
_SLOW = "Python worker failed to connect back"
_ATTEMPTS = 5
_LOOK_SECONDS = 0.1


def start_patiently(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """The query, once its source is up or it has ended. Retries if the source starts too slowly."""
    for _ in range(_ATTEMPTS - 1):
        query = start()
        while query.isActive and query.status["message"].startswith("Initializing"):
            time.sleep(_LOOK_SECONDS)
        error = query.exception()
        if error is None or _SLOW not in str(error):
            return query
    return start()
