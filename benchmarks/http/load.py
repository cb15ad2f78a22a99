"""The requests that the rows send."""

from __future__ import annotations

import base64

from benchmarks.http.penstock_server import PASSWORD, QUEUE, USER
from benchmarks.http.scale import BODY_BYTES

AUTHORIZATION = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


def push_request() -> bytes:
    """What the script ``push.lua`` sends."""
    head = (
        "POST /queue/push HTTP/1.1\r\n"
        "Host: 127.0.0.1\r\n"
        f"Authorization: {AUTHORIZATION}\r\n"
        f"consumerGroup: {QUEUE}\r\n"
        "Content-Type: text/plain\r\n"
        f"Content-Length: {BODY_BYTES}\r\n\r\n"
    )
    return head.encode() + b"x" * BODY_BYTES
