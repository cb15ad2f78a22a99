"""The exit codes, and which error ends the program with which of them."""

from __future__ import annotations

from typing import NoReturn

import typer

from penstock.errors import PenstockError, StorageError

__all__ = [
    "DENIED",
    "MEANINGS",
    "NOTHING",
    "REFUSED",
    "STORE",
    "UNREACHABLE",
    "USAGE",
    "fail",
    "fail_store",
    "stop",
    "usage",
]

REFUSED = 1
USAGE = 2
NOTHING = 3
UNREACHABLE = 4
STORE = 5
DENIED = 6

MEANINGS = {
    0: "all is well",
    REFUSED: "the answer is no: the server refused, a check failed, damage was found, the output "
    "cannot be written",
    USAGE: "wrong usage, or input that cannot be read",
    NOTHING: "nothing was received",
    UNREACHABLE: "the server cannot be reached",
    STORE: "the data directory cannot be opened, read or written",
    DENIED: "the name, the password or the role does not allow it",
    130: "interrupted, by Ctrl-C, SIGTERM or the end of the terminal",
    141: "whoever read the output went away",
}

_BY_CODE = {"unreachable": UNREACHABLE, "unauthorized": DENIED, "forbidden": DENIED}


def fail(error: PenstockError, *, reason: str = "") -> NoReturn:
    """End with what a server or a client raised: one sentence, with its stable code.

    ``reason`` is the code of what it was caused by, if that is another error.
    """
    code = reason or error.code
    stop(f"{error.code}: {error}{_hint(error, code)}", _BY_CODE.get(code, REFUSED))


def _hint(error: PenstockError, code: str) -> str:
    """What to do about it on the command line; the library's texts know nothing of options."""
    if code == "unauthorized":
        return (
            ". Set PENSTOCK_USER and PENSTOCK_PASSWORD, or pass --user and --password, or --token"
        )
    if code == "data_loss":
        return ". Of a pipeline that option is --ignore-data-loss"
    if isinstance(error.__cause__, ConnectionRefusedError):
        return ". Start a server with `penstock serve`, or name one with --url"
    return ""


def fail_store(error: PenstockError | OSError) -> NoReturn:
    """End with what opening or reading a data directory raised."""
    if isinstance(error, OSError):
        stop(f"the directory cannot be read or written: {error}", STORE)
    code = STORE if isinstance(error, StorageError) else USAGE
    stop(f"{error.code}: {error}", code)


def usage(text: str) -> NoReturn:
    stop(text, USAGE)


def stop(text: str, code: int) -> NoReturn:
    typer.echo(text, err=True)
    raise typer.Exit(code)
