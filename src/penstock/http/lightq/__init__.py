"""``/queue/*``: the API of LightQ and of Simple Queue Service.

A consumer group is a queue, read through its default subscription. A push to a group that does not
exist creates it. Where the two documents differ, LightQ's wins.
"""

from __future__ import annotations

from penstock.http.lightq.handlers import LightQ

__all__ = ["LightQ"]
