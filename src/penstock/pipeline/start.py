"""Starting a query, on a machine that may be slow."""

from __future__ import annotations

import time
from collections.abc import Callable

from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["start_patiently"]

# Spark gives the Python process of a source ten seconds to come up, and there is no setting.
_SLOW = "Python worker failed to connect back"
_ATTEMPTS = 5
_LOOK_SECONDS = 0.1


def start_patiently(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """The query, once its source is up or it has ended; started again if that took too long."""
    for _ in range(_ATTEMPTS - 1):
        query = start()
        while query.isActive and query.status["message"].startswith("Initializing"):
            time.sleep(_LOOK_SECONDS)
        error = query.exception()
        if error is None or _SLOW not in str(error):
            return query
    return start()
