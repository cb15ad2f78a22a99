"""Where the log goes, in which form, and from which level on."""

from __future__ import annotations

import logging
import sys
from typing import Literal

import structlog

__all__ = ["LEVELS", "Level", "configure_logs", "is_wanted", "level", "set_level"]

Level = Literal["debug", "info", "warning", "error"]
LEVELS: tuple[Level, ...] = ("debug", "info", "warning", "error")

_NUMBERS: dict[Level, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_lowest: Level = "warning"  # until it is configured


def configure_logs(level: Level, form: Literal["json", "console"]) -> None:
    """Log to stderr: one JSON object per line, or text for people."""
    renderer = (
        structlog.processors.JSONRenderer()
        if form == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            renderer,
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    logging.getLogger().handlers[:] = [_ToStructlog()]
    set_level(level)


class _ToStructlog(logging.Handler):
    """Writes what the store and libraries log through Python's logging, warnings and worse."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            structlog.get_logger().log(
                record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info
            )
        except Exception:
            self.handleError(record)


def set_level(level: Level) -> None:
    """Change the level, from the next line on."""
    global _lowest  # noqa: PLW0603 - as process-wide as the configuration of structlog itself
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(_NUMBERS[level]))
    _lowest = level


def level() -> Level:
    return _lowest


def is_wanted(level: Level) -> bool:
    """Whether a line of this level is written. Cheaper than asking structlog's logger."""
    return _NUMBERS[level] >= _NUMBERS[_lowest]
