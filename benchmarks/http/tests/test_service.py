from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from benchmarks.http.service import ServiceFailed, free_port, running

LISTEN = "import socket, sys, time; s = socket.create_server(('127.0.0.1', int(sys.argv[1])));"


def test_a_service_listens_within_the_block_and_is_gone_after_it(tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-c", LISTEN + "time.sleep(60)", str(port)]

    with running(command, port=port, directory=tmp_path) as process_id:
        os.kill(process_id, 0)

    with pytest.raises(ProcessLookupError):
        os.kill(process_id, 0)


def test_a_service_that_does_not_start_is_told_with_its_words(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no such luck')"]

    with (
        pytest.raises(ServiceFailed, match="no such luck"),
        running(command, port=free_port(), directory=tmp_path),
    ):
        pass
