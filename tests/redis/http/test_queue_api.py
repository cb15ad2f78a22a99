"""The tests of ``/queue`` once more, with a server that keeps its messages in Redis."""

from __future__ import annotations

from tests.http import test_ack_nack_extend, test_dlq, test_view
from tests.http.test_view import four

__all__ = ["four"]

for module in (test_ack_nack_extend, test_dlq, test_view):
    for name, found in vars(module).items():
        if name.startswith("test_"):
            globals()[f"{name}__{module.__name__.rpartition('.')[2]}"] = found
