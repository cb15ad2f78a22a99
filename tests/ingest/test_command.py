"""``penstock ingest run``."""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from penstock import ingest
from penstock.ingest import IngestMessage

WHEN = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
PROGRAM = (sys.executable, "-c", "from penstock.cli import main; main()")


async def run(store_url: str, handler: str, *options: str, **variables: str) -> tuple[int, str]:
    """The exit code, and what was said on stderr."""
    process = await asyncio.create_subprocess_exec(
        *(*PROGRAM, "ingest", "run", "--handler", handler, "--store", store_url, *options),
        env={**os.environ, **variables},
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await process.communicate()
    assert process.returncode is not None
    return process.returncode, errors.decode()


async def test_it_handles_everything_and_stops(store_url: str, tmp_path: Path) -> None:
    async with ingest.open(IngestMessage, store_url) as queue:
        await queue.publish_many(
            [
                IngestMessage(file_path=f"/in/{n}", tenant_code=f"t{n % 3}", received_at=WHEN)
                for n in range(30)
            ]
        )
    handled = tmp_path / "handled"
    options = ("--batch-size", "7", "--concurrency", "2", "--once")
    result = await run(store_url, "tests.ingest.handlers:note", *options, HANDLED=str(handled))
    assert result == (0, "")
    assert sorted(handled.read_text().splitlines()) == sorted(
        f"t{n % 3} /in/{n}" for n in range(30)
    )


async def test_a_handler_that_does_not_exist_is_wrong_usage(store_url: str) -> None:
    code, errors = await run(store_url, "tests.ingest.handlers:nothing")
    assert code == 2
    assert "tests.ingest.handlers:nothing" in errors


async def test_what_is_no_function_or_no_type_is_wrong_usage(store_url: str) -> None:
    """And nothing is handled: a batch that failed so often would be dead letters."""
    when = "tests.ingest.test_command:WHEN"
    for options in ([when], ["tests.ingest.handlers:note", "--type", when]):
        code, errors = await run(store_url, *options)
        assert code == 2
        assert errors.startswith("invalid_argument: ")
        assert errors.count("\n") == 1
