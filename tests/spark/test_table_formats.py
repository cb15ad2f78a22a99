"""Delta and Iceberg: their jars are for older Sparks, so each has an environment of its own.

`PENSTOCK_DELTA=<python>:<jar>,<jar>` and `PENSTOCK_ICEBERG=…` name them; see docs/spark.md.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from penstock.client import Client
from tests.client.server import Server
from tests.docs.page import ROOT
from tests.spark.helpers import OPTIONS

LIMIT_SECONDS = 280


@pytest.mark.usefixtures("java")
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_has_each_message_once_also_when_a_batch_is_run_again(
    server: Server, client: Client, queue: str, tmp_path: Path, kind: str
) -> None:
    python, _, jars = os.environ.get(f"PENSTOCK_{kind.upper()}", "").partition(":")
    if not jars:
        pytest.skip(f"needs a Python and jars of its own: PENSTOCK_{kind.upper()}=<python>:<jars>")
    client.publish(queue, [b"body %d" % n for n in range(100)])
    options = {
        "url": server.url,
        **OPTIONS,
        "subscribe": queue,
        "subscription": "lake",
        "maxOffsetsPerTrigger": "40",
    }
    given = {"kind": kind, "jars": jars, "where": str(tmp_path), "options": options}

    done = subprocess.run(
        [python, "-m", "tests.spark.table_formats", json.dumps(given)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    counts = json.loads(done.stdout.splitlines()[-1])
    assert (counts["first"], counts["second"]) == (100, 100)
