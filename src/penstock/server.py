"""The server: settings, storage, broker, web application, in this order, and back at the end."""

from __future__ import annotations

import ipaddress
import logging
import sys

import structlog
import uvicorn
import uvloop

from penstock.broker import Broker
from penstock.errors import InvalidArgument
from penstock.http.app import create_app
from penstock.settings import Settings
from penstock.storage.registry import open_store

__all__ = ["check_exposure", "run_server", "serve"]

# The writer thread must get its turn while the loop is busy; with the interpreter's own 5 ms a
# commit that needs several turns takes tens of milliseconds.
SWITCH_SECONDS = 0.0005


def check_exposure(settings: Settings) -> None:
    """Raises `InvalidArgument` when a stranger could come in by a password that is in the docs."""
    if settings.has_default_passwords and not _is_loopback(settings.host):
        raise InvalidArgument(
            f"with default passwords the server listens on loopback only, not on {settings.host}: "
            "set PENSTOCK_USER_PASSWORD and PENSTOCK_ADMIN_PASSWORD"
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def configure_logging(settings: Settings) -> None:
    level = logging.getLevelName(settings.log_level.upper())
    renderer = (
        structlog.processors.JSONRenderer()
        if settings.log_format == "json"
        else structlog.dev.ConsoleRenderer()
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


async def serve(settings: Settings) -> None:
    """Until a signal ends it. What was accepted is stored before it returns."""
    check_exposure(settings)
    store = await open_store(settings.data, sync=settings.sync)
    async with Broker(store) as broker:
        config = uvicorn.Config(
            create_app(broker, settings),
            host=settings.host,
            port=settings.port,
            access_log=False,
            log_level="warning",
            timeout_graceful_shutdown=10,
        )
        structlog.get_logger("penstock").info(
            "serving", url=f"http://{settings.host}:{settings.port}", data=settings.data
        )
        await uvicorn.Server(config).serve()


def run_server(settings: Settings) -> None:
    configure_logging(settings)
    sys.setswitchinterval(SWITCH_SECONDS)
    uvloop.run(serve(settings))
