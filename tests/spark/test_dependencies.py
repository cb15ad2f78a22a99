"""Who comes after the stream sees a message only once it is in bronze."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from penstock.pipeline.bronze import MESSAGES, land_stream
from penstock.pipeline.lake import Lake
from tests.client.server import Server
from tests.spark.helpers import OPTIONS, World, admin

COUNT = 200


class Receiver(ThreadingHTTPServer):
    """Notes for each message that it is sent whether bronze has it at that moment."""

    def __init__(self, lake: Lake) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lake = lake
        self.seen: dict[bytes, bool] = {}
        self.has_all = threading.Event()

    def take(self, body: bytes) -> None:
        table = self.lake.table("bronze")
        bodies = ds.dataset(table).to_table(["body"])["body"].to_pylist() if table.exists() else []
        self.seen.setdefault(body, body in bodies)
        if len(self.seen) == COUNT:
            self.has_all.set()


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        self.server.take(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def receiver(lake: Lake) -> Iterator[Receiver]:
    with Receiver(lake) as receiver:
        thread = threading.Thread(target=receiver.serve_forever)
        thread.start()
        yield receiver
        receiver.shutdown()
        thread.join()


@pytest.fixture
def calling(tmp_path: Path) -> Iterator[Server]:
    """A server that may call this machine."""
    allow = {"PENSTOCK_CALLBACK_ALLOW": "127.0.0.1/32"}
    with Server("memory:", tmp_path / "log", **allow) as server:
        yield server


def test_a_callback_after_the_stream_never_comes_before_bronze(
    world: World, calling: Server, receiver: Receiver, lake: Lake
) -> None:
    with admin(calling.url) as client:
        client.create_queue("orders")
        client.create_subscription("orders", "bronze", start="earliest")
        callback = {"url": f"http://127.0.0.1:{receiver.server_port}/", "concurrency": 2}
        client.create_subscription(
            "orders", "mail", start="earliest", after=["bronze"], callback=callback
        )
        client.publish("orders", [b"order %d" % n for n in range(COUNT)])
        held = client.queue_stats("orders").subscriptions
        assert {each.name: each.held for each in held}["mail"] == COUNT

        options = {
            "url": calling.url,
            **OPTIONS,
            "subscribe": "orders",
            "subscription": "bronze",
            "maxOffsetsPerTrigger": str(COUNT // 2),
        }
        land_stream(world.spark, lake, MESSAGES, options, once=True).awaitTermination()

        assert receiver.has_all.wait(60)
        assert receiver.seen == {b"order %d" % n: True for n in range(COUNT)}
