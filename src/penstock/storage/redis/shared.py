"""What servers share besides messages: documents, each a hash with a channel, and counts."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from penstock.errors import PenstockError
from penstock.storage.redis.channels import Channels
from penstock.storage.redis.connection import Argument
from penstock.storage.redis.steps import Steps
from penstock.storage.shared import LOOK_SECONDS, Document, Limit

__all__ = ["RedisShared"]

logger = logging.getLogger(__name__)

_UNKNOWN = "?"  # never a version
_RETRY_SECONDS = 1.0


class RedisShared:
    """See `Shared`."""

    def __init__(self, steps: Steps, channels: Channels) -> None:
        self._steps = steps
        self._channels = channels
        self._followers: list[asyncio.Task[None]] = []

    def place(self, name: str) -> str:
        return f"{self._steps.keys.document(name)} in Redis"

    async def get(self, name: str, known: str | None = None) -> Document | None:
        key = self._steps.keys.document(name)
        answer = await self._steps.run("get_document", key, _UNKNOWN if known is None else known)
        return Document(answer[1], answer[0].decode()) if answer else None

    async def put(self, name: str, content: bytes, version: str) -> str | None:
        new = secrets.token_hex(8)
        key = self._steps.keys.document(name)
        is_put = await self._steps.run("put_document", key, version, new, content)
        return new if is_put else None

    def follow(self, name: str, look: Callable[[], Awaitable[None]]) -> None:
        task = asyncio.get_running_loop().create_task(self._follow(name, look))
        self._followers.append(task)

    async def _follow(self, name: str, look: Callable[[], Awaitable[None]]) -> None:
        news = self._steps.keys.document_news(name)
        while not self._steps.is_closed:
            try:
                async with self._channels.waiter(news, None) as waiter:
                    await look()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_SECONDS):
                            await waiter.future
            except PenstockError as exc:
                logger.warning("whether %s has changed is not known: %s", name, exc)
                await asyncio.sleep(_RETRY_SECONDS)
            except Exception:
                logger.exception("following %s failed", name)
                await asyncio.sleep(_RETRY_SECONDS)

    async def announce(self, name: str) -> None:
        """Tell those who follow it that it was changed elsewhere."""
        await self._steps.command("PUBLISH", self._steps.keys.document_news(name), "*")

    async def over_limit(self, limits: Sequence[Limit]) -> Limit | None:
        arguments: list[Argument] = [part for limit in limits for part in limit]
        at = await self._steps.run(
            "count_requests", self._steps.keys.limits, self._steps.time, *arguments
        )
        return limits[at - 1] if at else None

    async def close(self) -> None:
        for task in self._followers:
            task.cancel()
        await asyncio.gather(*self._followers, return_exceptions=True)
