"""A publisher: it sends messages, and that is all it does."""

from __future__ import annotations

import argparse
import asyncio
import os

from penstock.client import AsyncClient
from penstock.errors import PenstockError


async def publish(options: argparse.Namespace) -> None:
    async with AsyncClient(
        options.url,
        username=os.environ.get("PENSTOCK_USER", "admin"),
        password=os.environ.get("PENSTOCK_PASSWORD", "adminpassword"),
    ) as client:
        await client.ensure_queue(options.queue)
        # One request, stored as a whole. It may be sent again if the answer is lost: the client
        # gives it a key, so that nothing is stored twice.
        published = await client.publish(options.queue, [text.encode() for text in options.texts])
        for text, message in zip(options.texts, published, strict=True):
            print(f"published {message.index} {text}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--queue", default="news")
    parser.add_argument("texts", nargs="+", metavar="TEXT")
    try:
        asyncio.run(publish(parser.parse_args()))
    except PenstockError as exc:
        parser.exit(1, f"{exc.code}: {exc}\n")
