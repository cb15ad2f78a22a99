"""A subscriber that is called back when there is something, and takes it at its own pace.

- It registers with a callback in mode ``notify``. A call says the lowest index that it has not
  acked; the answer to the call does not matter.
- It polls from where it is, a few messages at a time, and acks later, many at once.
- A message that it could not handle it asks for again.
- After a crash it asks again for what it had taken and not acked, then goes on behind it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from contextlib import suppress

from aiohttp import web

from penstock.client import AsyncClient, Delivery, InvalidSignature, WebhookVerifier
from penstock.errors import NotFound, NotLeased, PenstockError, SubscriptionExists

BATCH = 10
MAX_UNACKED = 100


class Subscriber:
    def __init__(self, client: AsyncClient, options: argparse.Namespace) -> None:
        self._client = client
        self._queue: str = options.queue
        self._name: str = options.name
        self._ack_seconds: float = options.ack_seconds
        self._news = asyncio.Event()
        self._handled: list[Delivery] = []
        self._failed_once: set[int] = set()

    # Being called.

    async def register(self, callback_url: str) -> None:
        callback = {"url": callback_url, "mode": "notify"}
        await self._client.ensure_queue(self._queue)
        try:
            made = await self._client.create_subscription(
                self._queue,
                self._name,
                start="earliest",
                max_in_flight=MAX_UNACKED,
                lease_seconds=None,  # what it took is its own until it acks it or asks again
                callback=callback,
            )
            secret = made.secret
        except SubscriptionExists:
            # It was here before: the secret of then is gone with the process, so it gets another.
            await self._client.alter_subscription(self._queue, self._name, callback=callback)
            secret = await self._client.rotate_secret(self._queue, self._name)
        assert secret is not None
        self._verifier = WebhookVerifier(secret)

    async def on_call(self, request: web.Request) -> web.Response:
        body = await request.read()
        try:
            self._verifier.verify(request.headers, body)
        except InvalidSignature as exc:
            return web.Response(status=401, text=str(exc))
        print(f"told {body.decode()}", flush=True)
        self._news.set()
        return web.Response(status=202)

    # Taking messages.

    async def run(self) -> None:
        acking = asyncio.create_task(self._ack_now_and_then())
        try:
            at = await self._resume()
            while True:
                self._news.clear()
                while batch := await self._client.poll(
                    self._queue, self._name, start=at, count=BATCH
                ):
                    for delivery in batch:
                        await self._take(delivery)
                    at = batch[-1].index + 1
                await self._news.wait()
        finally:
            acking.cancel()

    async def _resume(self) -> int:
        """Again what was taken before and not acked. Returns where to go on."""
        stats = await self._client.subscription_stats(self._queue, self._name)
        for index in range(stats.lowest_unacked_index, stats.cursor):
            with suppress(NotLeased, NotFound):  # acked, or gone
                await self._take_again(index)
        return stats.cursor

    async def _take(self, delivery: Delivery) -> None:
        try:
            self._handle(delivery)
        except ValueError as exc:
            print(f"failed {delivery.index} {exc}", flush=True)
            await self._take_again(delivery.index)
        else:
            self._handled.append(delivery)

    async def _take_again(self, index: int) -> None:
        again = await self._client.ask_again(self._queue, self._name, index)
        print(f"again {index} for the {again.deliveries}. time", flush=True)
        await self._take(again)

    def _handle(self, delivery: Delivery) -> None:
        """What this application is for. A text that ends in ? is too much for it at first."""
        text = delivery.body.decode()
        if text.endswith("?") and delivery.index not in self._failed_once:
            self._failed_once.add(delivery.index)
            raise ValueError("not now")
        print(f"handled {delivery.index} {text}", flush=True)

    async def _ack_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self._ack_seconds)
            handled, self._handled = self._handled, []
            if handled:
                await self._client.ack(self._queue, handled, self._name)
                print(f"acked {len(handled)}", flush=True)


async def main(options: argparse.Namespace) -> None:
    async with AsyncClient(
        options.url,
        username=os.environ.get("PENSTOCK_USER", "admin"),
        password=os.environ.get("PENSTOCK_PASSWORD", "adminpassword"),
    ) as client:
        subscriber = Subscriber(client, options)
        app = web.Application()
        app.router.add_post("/notice", subscriber.on_call)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", options.port).start()
        port = runner.addresses[0][1]
        await subscriber.register(f"http://127.0.0.1:{port}/notice")
        print(f"listening on port {port}", flush=True)
        await subscriber.run()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--queue", default="news")
    parser.add_argument("--name", default="reader", help="of the subscription")
    parser.add_argument("--port", type=int, default=0, help="for the callback; 0 is a free one")
    parser.add_argument("--ack-seconds", type=float, default=1.0, help="between acks")
    try:
        with suppress(KeyboardInterrupt):
            asyncio.run(main(parser.parse_args()))
    except PenstockError as exc:
        parser.exit(1, f"{exc.code}: {exc}\n")
