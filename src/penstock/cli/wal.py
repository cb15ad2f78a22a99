"""``penstock wal``: look at the files of a data directory, check them, repair them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Annotated, TypeVar

import typer
from rich.console import Console

from penstock.cli import exits, wal_tables
from penstock.cli.options import AsJson, Yes
from penstock.cli.output import console, print_json
from penstock.cli.owner import owner_of
from penstock.cli.progress import reading
from penstock.clock import SystemClock
from penstock.core.message import to_datetime
from penstock.errors import PenstockError
from penstock.storage.wal.checkpoint import numbers_of
from penstock.storage.wal.files import DiskFiles
from penstock.storage.wal.offline.repair import Repair, plan_repair
from penstock.storage.wal.offline.survey import RecordReport, Survey, records, survey
from penstock.storage.wal.offline.verify import Verification, total_bytes, verify

__all__ = ["app"]

DAMAGE = exits.REFUSED

# A directory in use changes while it is read, and may seem damaged, so it is looked at again.
_LOOKS = 3

T = TypeVar("T")

app = typer.Typer(
    name="wal",
    help="Look at, check and repair a data directory.",
    no_args_is_help=True,
)

Directory = Annotated[
    Path,
    typer.Argument(
        metavar="DIR", help="The data directory.", exists=True, file_okay=False, resolve_path=False
    ),
]


@app.command("inspect")
def inspect_command(
    directory: Directory,
    as_json: AsJson = False,
    show_records: Annotated[
        bool,
        typer.Option(
            "--records", help="Print every record instead; with --json one object a line."
        ),
    ] = False,
) -> None:
    """Show the files and the queues in a data directory.

    Changes nothing, and may be used while the store is open.
    """
    out = console()
    with _refusals():
        files = _files(directory)
        if show_records:
            for found in records(files):
                _print_record(out, found, as_json=as_json)
            return
        seen = _look(directory, lambda: survey(files), _is_whole)
    if as_json:
        print_json(seen)
    else:
        wal_tables.print_survey(out, seen)


@app.command("verify")
def verify_command(directory: Directory, as_json: AsJson = False) -> None:
    """Check every record, and that every message can be found. Exits with 1 when there is damage.

    Changes nothing. While the store is open, what is being written may be left out.
    """

    def check() -> Verification:
        with reading(total_bytes(files)) as progress:
            return verify(files, progress=progress)

    with _refusals():
        files = _files(directory)
        found = _look(directory, check, lambda found: found.is_good)
    if as_json:
        print_json(found)
    else:
        wal_tables.print_verification(console(), found, directory)
    if not found.is_good:
        raise typer.Exit(DAMAGE)


@app.command("repair")
def repair_command(
    directory: Directory,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what is lost and what would be done; do nothing.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Make a damaged data directory one that can be opened, with all that can be read.

    Says what is lost, then asks. Nothing is deleted: files that are not needed any more are moved
    into DIR/damaged-<time>. The store must be closed. Exits with 1 when damage is left.
    """
    out = console()
    with _refusals():
        files = _files(directory)
        files.lock()
        try:
            with reading(total_bytes(files)) as progress:
                plan = plan_repair(files, rng=Random(secrets.randbits(64)), progress=progress)
            if not plan.is_needed:
                out.print("There is nothing to repair.")
                return
            wal_tables.print_repair(out, plan)
            if dry_run:
                raise typer.Exit(DAMAGE)
            if not yes:
                typer.confirm("Repair it?", abort=True)
            _repair(out, files, plan, directory)
        finally:
            files.unlock()


def _repair(out: Console, files: DiskFiles, plan: Repair, directory: Path) -> None:
    aside = plan.apply(files, directory=_new_name(directory), random_bytes=secrets.token_bytes)
    out.print(f"What was not needed any more is in {aside}", soft_wrap=True)
    with reading(total_bytes(files)) as progress:
        found = verify(files, progress=progress)
    wal_tables.print_verification(out, found, directory)
    if not found.is_good:
        raise typer.Exit(DAMAGE)


def _new_name(directory: Path) -> str:
    name = f"damaged-{to_datetime(SystemClock().now_ns()):%Y%m%dT%H%M%SZ}"
    taken = sum(1 for path in directory.iterdir() if path.name.startswith(name))
    return f"{name}-{taken + 1}" if taken else name


def _files(directory: Path) -> DiskFiles:
    files = DiskFiles(directory)
    if not any(numbers_of(files, ending) for ending in ("log", "ckpt", "pack")):
        exits.usage(f"{directory} holds no log: name a data directory of Penstock")
    return files


def _look(directory: Path, look: Callable[[], T], is_good: Callable[[T], bool]) -> T:
    """Look at a directory, more than once if it seems damaged while a process has it open."""
    for _ in range(_LOOKS - 1):
        with suppress(FileNotFoundError):
            found = look()
            if is_good(found) or owner_of(directory) is None:
                return found
    return look()


def _is_whole(seen: Survey) -> bool:
    return seen.refusal is None and not any(file.damages for file in seen.files)


def _print_record(out: Console, found: RecordReport, *, as_json: bool) -> None:
    if as_json:
        event = found.event
        names = event.__struct_fields__ if event is not None else ()
        fields = {name: getattr(event, name) for name in names}
        print_json(vars(found) | {"event": fields})
    else:
        out.print(wal_tables.record_line(found), highlight=False, soft_wrap=True, markup=False)


@contextmanager
def _refusals() -> Iterator[None]:
    """Errors as a sentence, not as a traceback."""
    try:
        yield
    except (PenstockError, OSError) as exc:
        exits.fail_store(exc)
