"""A server in a process of its own, on a free port of loopback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

START_SECONDS = 60
STOP_SECONDS = 20


class ServiceFailed(Exception):
    """A server did not start; the message has the end of what it said."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def running(
    command: Sequence[str],
    *,
    port: int,
    directory: Path,
    environment: Mapping[str, str] | None = None,
) -> Iterator[int]:
    """The process, which listens on `port`, by its id. It is gone when the block ends.

    What it says goes to a file in `directory`. It has a process group of its own, so that what it
    starts ends with it.
    """
    log = directory / "output.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
    try:
        _wait_for(port, process, log)
        yield process.pid
    finally:
        _end(process)


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    said = log.read_text(errors="replace")[-2000:]
    raise ServiceFailed(f"{process.args!r} does not listen on port {port}: {said}")


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)
    # What it started may outlive it.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
