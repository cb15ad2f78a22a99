"""The line that every request leaves in the log."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Literal

import msgspec
import structlog

from penstock.logs import is_wanted

__all__ = ["RequestLog"]

FLUSH_SECONDS = 0.005
_MAX_GROUP_CHARACTERS = 50

logger = structlog.get_logger("penstock.http")


class _Line(msgspec.Struct):
    """The fields that structlog would write."""

    request_id: str
    method: str
    path: str
    group: str | None
    status: int
    milliseconds: float
    timestamp: str
    event: str = "request"
    level: str = "info"


class RequestLog:
    """Writes one line per request to stderr.

    Lines of JSON bypass structlog, which takes as long as the request itself. Those of a few
    milliseconds are written together. `flush` writes those that still wait.
    """

    def __init__(self, form: Literal["json", "console"]) -> None:
        self._is_json = form == "json"
        self._encode_lines = msgspec.json.Encoder().encode_lines
        self._lines: list[_Line] = []
        self._millisecond = -1
        self._clock_text = ""

    def add(
        self,
        request_id: str,
        method: str,
        path: str,
        group: bytes | None,
        status: int,
        seconds: float,
    ) -> None:
        if not is_wanted("info"):
            return
        text = group.decode("latin-1")[:_MAX_GROUP_CHARACTERS] if group else None
        milliseconds = round(seconds * 1000, 2)
        if not self._is_json:
            logger.info(
                "request",
                request_id=request_id,
                method=method,
                path=path,
                group=text,
                status=status,
                milliseconds=milliseconds,
            )
            return
        if not self._lines:
            asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)
        self._lines.append(
            _Line(request_id, method, path, text, status, milliseconds, self._timestamp())
        )

    def flush(self) -> None:
        if not self._lines:
            return
        lines, self._lines = self._lines, []
        sys.stderr.write(self._encode_lines(lines).decode())
        sys.stderr.flush()

    def _timestamp(self) -> str:
        millisecond = time.time_ns() // 1_000_000
        if millisecond != self._millisecond:
            # Many requests share one.
            self._millisecond = millisecond
            second, rest = divmod(millisecond, 1000)
            self._clock_text = time.strftime(f"%Y-%m-%dT%H:%M:%S.{rest:03}Z", time.gmtime(second))
        return self._clock_text
