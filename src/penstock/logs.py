"""Where the log goes, in which form, and from which level on."""

from __future__ import annotations

import logging
import sys
from typing import Literal

import structlog

__all__ = ["LEVELS", "Level", "configure_logs", "level", "set_level"]

Level = Literal["debug", "info", "warning", "error"]
LEVELS: tuple[Level, ...] = ("debug", "info", "warning", "error")

_NUMBERS: dict[Level, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def configure_logs(level: Level, form: Literal["json", "console"]) -> None:
    """On stderr: JSON, an object a line, or text for people."""
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
    set_level(level)


def set_level(level: Level) -> None:
    """From the next line on."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(_NUMBERS[level]))


def level() -> Level:
    logger = structlog.get_logger()
    return next(name for name in LEVELS if logger.is_enabled_for(_NUMBERS[name]))
