"""Signals that reach every process of a pipeline at once, as those of a terminal do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.pipeline.lake import Lake
from penstock.pipeline.landing import Landing
from tests.spark.helpers import World

LIMIT_SECONDS = 120
_LOOK_SECONDS = 0.1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda one: one.name)
def test_a_pipeline_ends_in_good_order_when_its_whole_group_is_told_to(
    world: World, queue: str, tmp_path: Path, number: signal.Signals
) -> None:
    # Given a pipeline that has landed something, and is waiting for more
    world.publish(queue, 3)
    words = ["--queues", queue, "--url", world.options["url"], "--master", "local[1]"]
    pipeline = subprocess.Popen(
        [sys.executable, "-c", "from penstock.cli import main; main()", "pipeline", "run", *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        until = time.monotonic() + LIMIT_SECONDS
        landing = Landing(Lake(str(tmp_path / "lake")), "bronze")
        while landing.last().number == 0:
            assert pipeline.poll() is None
            assert time.monotonic() < until
            time.sleep(_LOOK_SECONDS)
        # When all of its processes get the signal
        os.killpg(pipeline.pid, number)
        # Then it ends as it does when it alone gets it
        _, said = pipeline.communicate(timeout=LIMIT_SECONDS)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(pipeline.pid, signal.SIGKILL)
    assert "query_failed" not in said
    assert pipeline.returncode == 0, said
    assert (tmp_path / "lake" / "gold").exists()
