"""Child processes that report in lines of JSON, and can be asked or killed."""

from __future__ import annotations

import subprocess
import sys
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

T = TypeVar("T")


class ChildFailed(Exception):
    """A child process ended without saying what it was to say; its own error is above."""


class Child:
    """A Python module run as a process of its own.

    Its one argument is a JSON object, and so is each line that it prints. The process is gone
    when the block ends, however it ends.
    """

    def __init__(self, module: str, task: msgspec.Struct) -> None:
        self._module = module
        self._task = msgspec.json.encode(task).decode()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", self._module, self._task],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        process = self._running
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()

    def hear(self, kind: type[T]) -> T:
        """The next line that the child prints. Raises ChildFailed if it ended instead."""
        assert self._running.stdout is not None
        line = self._running.stdout.readline()
        if not line:
            raise ChildFailed(f"{self._module} ended with status {self._running.wait()}")
        return msgspec.json.decode(line, type=kind)

    def ask(self, question: Any, kind: type[T]) -> T:
        """Send one line and wait for the answer."""
        assert self._running.stdin is not None
        self._running.stdin.write(msgspec.json.encode(question) + b"\n")
        self._running.stdin.flush()
        return self.hear(kind)

    def finish(self) -> None:
        """Close the child's input, and wait until it has ended by itself, without an error."""
        assert self._running.stdin is not None
        self._running.stdin.close()
        status = self._running.wait()
        if status != 0:
            raise ChildFailed(f"{self._module} ended with status {status}")

    def kill(self) -> None:
        """End it at once, with SIGKILL: it can tidy up nothing."""
        self._running.kill()
        self._running.wait()

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "enter the block first"
        return self._process


def read_task(kind: type[T]) -> T:
    """In a child: the task that it was started with."""
    return msgspec.json.decode(sys.argv[1], type=kind)


def say(answer: Any) -> None:
    """In a child: print one line for the parent."""
    print(msgspec.json.encode(answer).decode(), flush=True)
