"""The server: opens the store, the broker and the web application, and closes them in reverse."""

from __future__ import annotations

import asyncio
import gc
import resource
import signal
import socket
import ssl
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Any

import structlog
import uvicorn
import uvloop
from prometheus_client import CollectorRegistry

from penstock.broker import Broker
from penstock.cannot_listen import cannot_listen
from penstock.errors import InvalidArgument
from penstock.http.app import create_app
from penstock.http.connection import Connection
from penstock.http.request_log import RequestLog
from penstock.http.request_times import SyncTimes
from penstock.letter_log import LetterLog
from penstock.lightq_variables import without_effect
from penstock.logs import configure_logs
from penstock.push import LOOPBACK, Dispatcher, parse_networks
from penstock.settings import Settings
from penstock.shown_url import shown_url
from penstock.storage.registry import open_store

__all__ = ["check_exposure", "check_tls", "check_users", "run_server", "serve"]

# The writer thread must get its turn while the loop is busy. With the interpreter's default of
# 5 ms, a commit that needs several turns takes tens of milliseconds.
SWITCH_SECONDS = 0.0005
# A request leaves a few dozen objects behind, none of them in a cycle: see `Connection.ended`.
GC_THRESHOLD = 10_000
GRACE_SECONDS = 10
KEEP_ALIVE_SECONDS = 75
# How long a client may read nothing of an answer. Spark and people with a pager take their time.
UNREAD_SECONDS = 300
_BACKLOG = 2048
_REFRESH_SECONDS = 5.0
_TICKS_PER_SECOND = 10

logger = structlog.get_logger("penstock")


def check_exposure(settings: Settings) -> None:
    """Raises `InvalidArgument` when a stranger could log in with a password from the docs."""
    if settings.has_default_passwords and not settings.is_on_loopback:
        raise InvalidArgument(
            f"with default passwords the server listens on loopback only, not on {settings.host}: "
            "set PENSTOCK_USER_PASSWORD and PENSTOCK_ADMIN_PASSWORD"
        )


def check_users(settings: Settings) -> None:
    """Raises `InvalidArgument` when one of the two users could not log in, or anybody could.

    An empty value is usually a variable that somebody forgot to fill in.
    """
    for name in ("user_username", "user_password", "admin_username", "admin_password"):
        if not getattr(settings, name).strip():
            raise InvalidArgument(f"PENSTOCK_{name.upper()} is empty: set it, or leave it out")
    names = (settings.user_username, settings.admin_username)
    if any(":" in name for name in names):
        raise InvalidArgument("a username holds a colon, which HTTP Basic cannot send: use another")
    if names[0] == names[1]:
        raise InvalidArgument(
            f"user and admin are both called {names[0]!r}: set another PENSTOCK_USER_USERNAME or "
            "PENSTOCK_ADMIN_USERNAME"
        )


def check_tls(settings: Settings) -> None:
    """Raises `InvalidArgument` for a certificate that cannot be used, or a key without one."""
    certificate, key = settings.tls_certificate, settings.tls_key
    if certificate is None:
        if key is not None:
            raise InvalidArgument(
                "PENSTOCK_TLS_KEY is set without PENSTOCK_TLS_CERTIFICATE: set both"
            )
        return
    try:
        # With a password: otherwise it would ask for that of an encrypted key, and wait.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except OSError as exc:
        files = certificate if key is None else f"{certificate} with the key {key}"
        raise InvalidArgument(
            f"the certificate {files} cannot be used: {exc.strerror or exc}. It has to be a PEM "
            "file with its key, which is not encrypted, in the same file or in PENSTOCK_TLS_KEY"
        ) from exc


class _Server(uvicorn.Server):
    """Ends in good order when a signal comes: the caller goes on to close what it opened."""

    def __init__(self, config: uvicorn.Config, broker: Broker, receive_seconds: float) -> None:
        super().__init__(config)
        self._broker = broker
        self._receive_seconds = receive_seconds

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn's own version raises the signal again at the end, which kills the process before
        # the store is closed.
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)
        for number in signals:
            loop.add_signal_handler(number, self._stop)
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)

    def _stop(self) -> None:
        self.force_exit = self.should_exit
        self.should_exit = True
        self._broker.stop_waiting()

    async def on_tick(self, counter: int) -> bool:
        if counter % _TICKS_PER_SECOND == 0:
            for connection in list(self.server_state.connections):
                if isinstance(connection, Connection):
                    connection.close_if_slow(self._receive_seconds)
        return await super().on_tick(counter)


def server_options() -> dict[str, Any]:
    """The options of uvicorn that do not depend on our settings."""
    return {
        "http": Connection,
        "ws": "none",
        "access_log": False,
        "log_config": None,
        "log_level": "error",
        "server_header": False,
        "proxy_headers": False,
        "timeout_keep_alive": KEEP_ALIVE_SECONDS,
        "timeout_graceful_shutdown": GRACE_SECONDS,
    }


async def serve(settings: Settings, unused: Mapping[str, str] = MappingProxyType({})) -> None:
    """Serve until a signal comes. What was accepted is stored and answered before it returns.

    ``unused`` maps variables that have no effect to the reason, which is logged. Raises
    `InvalidArgument` if it cannot listen there, and whatever opening the store raises.
    """
    check_users(settings)
    check_exposure(settings)
    check_tls(settings)
    listener = _listen(settings)
    log = RequestLog(settings.log_format)
    try:
        registry = CollectorRegistry()
        syncs = SyncTimes()
        registry.register(syncs)
        store = await open_store(
            settings.store_url,
            sync=settings.sync,
            observe_sync=syncs.add,
            archive=settings.archive,
            archive_mode=settings.archive_mode,
        )
        letters = LetterLog()
        store.watch_letters(letters)
        async with Broker(store) as broker:
            config = uvicorn.Config(
                await create_app(broker, settings, log=log, registry=registry),
                **server_options(),
                limit_concurrency=settings.max_connections,
                ssl_certfile=settings.tls_certificate,
                ssl_keyfile=settings.tls_key,
            )
            dispatcher = _dispatcher(broker, settings)
            await dispatcher.start()
            useless = {**without_effect(has_archive=settings.archive is not None), **unused}
            for name, why in useless.items():
                logger.warning("a variable has no effect", variable=name, because=why)
            logger.info("serving", url=_url(settings, listener), store=_shown(settings.store_url))
            try:
                await _Server(config, broker, settings.receive_seconds).serve([listener])
                logger.info("stopping")
            finally:
                await dispatcher.close()
        letters.close()
    finally:
        listener.close()
        log.flush()
    logger.info("stopped")


def _dispatcher(broker: Broker, settings: Settings) -> Dispatcher:
    allowed = parse_networks(settings.callback_allow)
    if settings.is_on_loopback:
        # Whoever can define a callback has access to this machine anyway.
        allowed += LOOPBACK
    tls = ssl.create_default_context()
    if settings.callback_ca is not None:
        try:
            tls.load_verify_locations(settings.callback_ca)
        except OSError as exc:
            raise InvalidArgument(f"callback_ca cannot be read: {exc.strerror or exc}") from exc
    if not settings.callback_verify_tls:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    return Dispatcher(
        broker,
        allowed=allowed,
        workers=settings.callback_workers,
        lease_seconds=settings.callback_lease_seconds,
        # Other servers may define callbacks in a store that they share.
        refresh_seconds=None if settings.store is None else _REFRESH_SECONDS,
        tls=tls,
    )


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        listener = socket.create_server(
            (settings.host, settings.port), family=family, backlog=_BACKLOG
        )
        # Its connections inherit it. The kernel sees every byte that a client takes; we see none of
        # those that a thread sends past the event loop. Only Linux has it.
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_SECONDS * 1000)
        return listener
    except OSError as exc:
        raise cannot_listen(settings.host, settings.port, exc) from exc


def _shown(store_url: str) -> str:
    # A path may hold any character.
    return shown_url(store_url) if "://" in store_url else store_url


def _url(settings: Settings, listener: socket.socket) -> str:
    scheme = "https" if settings.tls_certificate else "http"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{scheme}://{host}:{listener.getsockname()[1]}"


def _allow_many_files() -> None:
    """Raise the soft limit of open files. A common one is 1,024, and every connection is a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 65_536)), hard))


def run_server(settings: Settings, unused: Mapping[str, str] = MappingProxyType({})) -> None:
    """Set up the process, and serve until a signal comes. Raises what `serve` raises."""
    configure_logs(settings.log_level, settings.log_format)
    sys.setswitchinterval(SWITCH_SECONDS)
    _allow_many_files()
    # What was imported stays for good: the garbage collector need not look at it every time.
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    uvloop.run(serve(settings, unused))
