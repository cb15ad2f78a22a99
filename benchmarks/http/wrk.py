"""wrk: closed-loop load on a server, from a C program that is faster than any of them."""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path

from benchmarks.harness.sample import Sample

SCRIPTS = Path(__file__).parent / "scripts"


class WrkFailed(Exception):
    """wrk could not run, or some answers were not good."""


def is_installed() -> bool:
    return shutil.which("wrk") is not None


async def wrk(
    url: str, script: str, *, connections: int, seconds: float, threads: int = 1, argument: str = ""
) -> Sample:
    """Requests that were answered with success. Raises `WrkFailed` if any was not.

    With as many threads as connections, a script has one connection to itself.
    """
    process = await asyncio.create_subprocess_exec(
        *["wrk", "--threads", str(threads), "--connections", str(connections)],
        *["--duration", f"{max(1, round(seconds))}s", "--timeout", "20s"],
        *["--script", str(SCRIPTS / script), url, "--", argument],
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return parse(output.decode())


def parse(output: str) -> Sample:
    """From what wrk prints at its end."""
    found = re.search(r"(\d+) requests in ([\d.]+)(ms|s|m),", output)
    bad = re.search(r"(Non-2xx or 3xx responses: \d+|Socket errors: .*)", output)
    if found is None or bad is not None:
        raise WrkFailed(bad[1] if bad else output.strip()[-500:])
    # Rounded in that line; the rate is exact.
    rate = re.search(r"Requests/sec:\s+([\d.]+)", output)
    assert rate is not None
    requests = int(found[1])
    return Sample(messages=requests, seconds=requests / float(rate[1]))
