"""The body that everyone posts."""

from __future__ import annotations

import random

from benchmarks.fanout.scale import BODY_BYTES


def make_body() -> bytes:
    return random.Random(256).randbytes(BODY_BYTES)
