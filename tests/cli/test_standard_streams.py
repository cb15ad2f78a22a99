"""Standard streams that are full, cut off, closed or of another encoding."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.shell import Shell

_PATIENCE_SECONDS = 60


def run(shell: Shell, command: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """By a real shell, which does the redirections."""
    program = f"{sys.executable} -c 'from penstock.cli import main; main()'"
    return subprocess.run(
        ["sh", "-c", command.replace("penstock", program)],
        capture_output=True,
        timeout=_PATIENCE_SECONDS,
        env={**os.environ, "PENSTOCK_URL": shell.url, **environment},
        check=False,
    )


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Of data, with a record or two in it."""
    program = f"""
import asyncio, penstock
async def main():
    async with penstock.open({str(tmp_path / "data")!r}) as broker:
        await broker.create_queue("orders")
asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=_PATIENCE_SECONDS)
    return tmp_path / "data"


COMMANDS = ["--help", "queue list", "queue list --json", "wal inspect {data}"]


@pytest.mark.parametrize("command", COMMANDS)
def test_an_output_that_is_full_is_one_sentence_and_exits_with_1(
    penstock: Shell, directory: Path, command: str
) -> None:
    done = run(penstock, f"penstock {command.format(data=directory)} > /dev/full")

    assert done.stderr == b"the output cannot be written: No space left on device\n"
    assert done.returncode == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_a_pipe_that_nobody_reads_exits_with_141(
    penstock: Shell, directory: Path, command: str
) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    try:
        done = subprocess.run(
            [
                *[sys.executable, "-c", "from penstock.cli import main; main()"],
                *command.format(data=directory).split(),
            ],
            stdout=theirs,
            stderr=subprocess.PIPE,
            timeout=_PATIENCE_SECONDS,
            env={**os.environ, "PENSTOCK_URL": penstock.url},
            check=False,
        )
    finally:
        os.close(theirs)

    assert (done.returncode, done.stderr) == (141, b"")


def test_closed_streams_are_no_error(penstock: Shell, queue: str) -> None:
    # A closed standard input is an empty one, and an output that is closed is not wanted.
    done = run(penstock, f"penstock publish {queue} --lines <&-")
    assert (done.returncode, done.stdout) == (0, b"there was nothing to publish\n")

    done = run(penstock, f"penstock publish {queue} -m hello <&- >&- 2>&-")
    assert done.returncode == 0
    assert penstock.ok("view", queue, "--body") == "hello\n"


def test_what_an_encoding_does_not_know_is_written_out(penstock: Shell) -> None:
    done = run(penstock, "penstock completion bash", PYTHONIOENCODING="ascii")
    assert done.returncode == 0

    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from penstock.cli.standard_streams import prepare_streams as prepare; "
            "prepare(); print('\u017c')",
        ],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        timeout=_PATIENCE_SECONDS,
        check=False,
    )
    assert done.stdout == b"\\u017c\n"


def test_what_is_not_to_be_buffered_is_not() -> None:
    # A handler of `penstock ingest run` may print, and -u or PYTHONUNBUFFERED shows it at once.
    code = """
import os
from penstock.cli.standard_streams import prepare_streams
prepare_streams()
print("at once")
os._exit(0)
"""
    done = subprocess.run(
        [sys.executable, "-u", "-c", code],
        stdout=subprocess.PIPE,
        timeout=_PATIENCE_SECONDS,
        check=False,
    )

    assert done.stdout == b"at once\n"
