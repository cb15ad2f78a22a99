"""``penstock pipeline``: land every message in a lake, look at it, replay from it."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from penstock.cli import exits
from penstock.cli.connection import Connection, with_connection
from penstock.cli.options import AsJson, Yes
from penstock.cli.output import console, print_json
from penstock.core.limits import DEAD_LETTER_SUFFIX
from penstock.errors import InvalidArgument, PenstockError

if TYPE_CHECKING:
    from penstock.pipeline.compaction import Compacting
    from penstock.pipeline.lake import Lake
    from penstock.pipeline.run import Progress

__all__ = ["app"]

app = typer.Typer(
    name="pipeline",
    help="Land messages in a lake with Spark.",
    no_args_is_help=True,
)

LakePath = Annotated[
    str,
    typer.Option("--lake", help="A directory, or s3://bucket/path.", envvar="PENSTOCK_LAKE"),
]
Master = Annotated[
    str | None,
    typer.Option(
        "--master", help="Spark's master; without it what spark-submit says, or local[*]."
    ),
]
Memory = Annotated[str, typer.Option("--driver-memory", help="Memory of Spark's driver.")]
Conf = Annotated[
    list[str] | None, typer.Option("--conf", help="A setting of Spark's, name=value; repeatable.")
]
FetchJars = Annotated[
    bool,
    typer.Option(
        "--fetch-jars",
        help="Spark fetches jars for S3, Delta or Iceberg from Maven Central, once.",
    ),
]


@app.command("run")
@with_connection
def run_command(
    connection: Connection,
    lake: LakePath = "./lake",
    queues: Annotated[
        str | None, typer.Option("--queues", help="Some queues, with commas; all if absent.")
    ] = None,
    pattern: Annotated[
        str | None, typer.Option("--pattern", help="Queues whose name matches; all if absent.")
    ] = None,
    subscription: Annotated[
        str, typer.Option("--subscription", help="The pipeline's own, on each queue.")
    ] = "pipeline",
    once: Annotated[
        bool, typer.Option("--once", help="Stop at the end of the queues as they are now.")
    ] = False,
    refresh_seconds: Annotated[
        float, typer.Option("--refresh-seconds", help="How often silver and gold follow.", min=1)
    ] = 60,
    max_rows: Annotated[
        int | None, typer.Option("--max-rows", help="Rows of a batch at most.", min=1)
    ] = None,
    schemas: Annotated[
        Path | None,
        typer.Option(
            "--schemas", help='A file of JSON: {"orders": "id INT, total DOUBLE"}', exists=True
        ),
    ] = None,
    ignore_data_loss: Annotated[
        bool, typer.Option("--ignore-data-loss", help="Go on when messages are gone.")
    ] = False,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            "--checkpoint",
            help="Where Spark keeps its streams' progress: a directory or a URL; else in the lake.",
        ),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(
            "--format", help="Format of the tables of a new lake: parquet, delta or iceberg."
        ),
    ] = None,
    batch_seconds: Annotated[
        float | None,
        typer.Option(
            "--batch-seconds",
            help="Least time from one batch to the next; if absent, 0 on a disk and 60 on S3.",
            min=0,
        ),
    ] = None,
    master: Master = None,
    driver_memory: Memory = "1g",
    conf: Conf = None,
    fetch_jars: FetchJars = False,
) -> None:
    """Read queues into bronze, exactly once, and keep silver and gold up to date."""
    with _refusals():
        from penstock.pipeline.jars import lake_session
        from penstock.pipeline.lake import Lake
        from penstock.pipeline.run import Job, run
        from penstock.pipeline.silver import check_schemas
        from penstock.spark.options import check_queue, read_options

        if queues is not None and pattern is not None:
            raise InvalidArgument("--queues and --pattern contradict each other: give one")
        names = [name.strip() for name in (queues or "").split(",") if name.strip()]
        if (queues is not None and not names) or pattern == "":
            raise InvalidArgument(
                "--queues and --pattern name no queue when they are empty: leave both out for all"
            )
        for name in names:
            check_queue(name)
            if name.endswith(DEAD_LETTER_SUFFIX):
                raise InvalidArgument(
                    f"{name} holds dead letters, which a pipeline does not land: name the queue "
                    "that they are of, and turn its setting events on to count them"
                )
        typed = _schemas(schemas)
        chosen = Lake(lake)
        chosen.choose_format(format)
        job = Job(
            lake=chosen,
            options=_options(connection),
            queues=names,
            pattern=pattern,
            subscription=subscription,
            once=once,
            refresh_seconds=refresh_seconds,
            max_rows=max_rows,
            schemas=typed,
            fail_on_data_loss=not ignore_data_loss,
            checkpoints=checkpoint,
            batch_seconds=batch_seconds,
        )
        read_options(job.stream_options, "stream")  # refuses what the stream would, but at once
        stop = threading.Event()
        spark = lake_session(
            job.lake, _master(master), memory=driver_memory, settings=conf, fetch_jars=fetch_jars
        )()
        check_schemas(typed)  # by Spark, which alone understands them
        if once and names:
            _tell_missing(names, job.options)
        with _signals(stop), _live() as live:
            progress = run(spark, job, stop=stop, show=lambda now: live.update(_shown(now)))
        _console().print(_shown(progress))


@app.command("status")
def status_command(
    lake: LakePath = "./lake",
    as_json: AsJson = False,
) -> None:
    """Show what has been landed. Needs neither Spark nor the server."""
    with _refusals():
        from penstock.pipeline.status import status_of

        status = status_of(_existing(lake))
        if as_json:
            print_json(status)
            return
        tables = Table("table", "rows", "files", "bytes", title=status.lake)
        for each in status.tables:
            tables.add_row(each.table, f"{each.rows:,}", f"{each.files:,}", f"{each.bytes:,}")
        landed = Table("queue", "landed up to index")
        for queue, index in sorted(status.landed.items()):
            landed.add_row(queue, f"{index - 1:,}")
        out = console()
        out.print(tables)
        out.print(landed)
        for job, batches in status.behind.items():
            out.print(f"{job}: {batches} batches behind bronze")


@app.command("report")
def report_command(
    lake: LakePath = "./lake",
    output: Annotated[
        str | None, typer.Option("--output", help="The page; LAKE/report.html if absent.")
    ] = None,
    plots: Annotated[
        str | None, typer.Option("--plots", help="Also write each plot there, as SVG.")
    ] = None,
) -> None:
    """Make one page with plots and what needs attention."""
    with _refusals():
        from penstock.pipeline.report import write_report

        found = _existing(lake)
        path = write_report(found, output, plots=plots)
        console().print(f"The report is {path}", soft_wrap=True)


@app.command("replay")
@with_connection
def replay_command(
    connection: Connection,
    where: Annotated[str, typer.Option("--where", help="A condition of SQL over bronze.")],
    to: Annotated[str, typer.Option("--to", help="The queue that gets the messages.")],
    lake: LakePath = "./lake",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    yes: Yes = False,
    master: Master = None,
    driver_memory: Memory = "1g",
    conf: Conf = None,
    fetch_jars: FetchJars = False,
) -> None:
    """Publish messages of bronze once more. Counts them first, then asks."""
    with _refusals():
        from penstock.pipeline.jars import lake_session
        from penstock.pipeline.replay import Replay
        from penstock.spark.options import check_queue

        check_queue(to)
        found = _existing(lake)
        spark = lake_session(
            found, _master(master), memory=driver_memory, settings=conf, fetch_jars=fetch_jars
        )()
        replay = Replay(spark, found, where, to)
        counts = replay.count()
        out = console()
        for queue, count in counts.items():
            out.print(f"{count:,} messages of {queue}")
        total = sum(counts.values())
        out.print(
            f"{total:,} messages would go to {to}" if dry_run else f"{total:,} messages to {to}"
        )
        if dry_run or not total:
            return
        if not yes:
            typer.confirm("Publish them?", abort=True)
        replay.send(_options(connection))
        out.print("Done.")


@app.command("compact")
def compact_command(
    lake: LakePath = "./lake",
    master: Master = None,
    driver_memory: Memory = "1g",
    conf: Conf = None,
    fetch_jars: FetchJars = False,
) -> None:
    """Merge the small files of each queue and day. Refused while a pipeline runs.

    Spark is started only for the files of silver. On S3 files cannot be exchanged: there the days
    that are over are written to LAKE/compacted, and a pipeline may run.
    """
    with _refusals():
        from penstock.pipeline.jars import lake_session
        from penstock.pipeline.run import compact

        found = _existing(lake)
        spark = lake_session(
            found, _master(master), memory=driver_memory, settings=conf, fetch_jars=fetch_jars
        )
        rows: dict[str, Compacting] = {}

        def show(now: Compacting) -> None:
            rows[now.table] = now
            live.update(_compacting(rows.values()), refresh=True)

        @cache
        def start() -> Any:
            # While it starts, what is written to stderr goes to its log.
            live.console.print("Starting Spark")
            live.stop()
            try:
                return spark()
            finally:
                live.start()

        with found.lock(), _live() as live:
            done = compact(found, start, show=show)
        for table, each in done.items():
            console().print(f"{table}: {each.before} files became {each.after}")


@app.command("reset")
def reset_command(
    lake: LakePath = "./lake",
    yes: Yes = False,
) -> None:
    """Delete the lake with all its tables. Queues, subscriptions and other files stay."""
    with _refusals():
        from penstock.pipeline.status import status_of

        found = _existing(lake)
        with found.lock():
            rows = sum(each.rows for each in status_of(found).tables)
            if not yes:
                typer.confirm(f"Delete the lake in {found.root} with {rows:,} rows?", abort=True)
            found.remove()
        console().print(f"The lake in {found.root} is deleted.", soft_wrap=True)


def _tell_missing(names: list[str], options: dict[str, str]) -> None:
    """Queues that do not exist are no error: without ``--once`` they are waited for."""
    from penstock.spark.options import read_options
    from penstock.spark.queues import Queues

    every = {**options, "subscribePattern": "|".join(map(re.escape, names))}
    found = Queues(read_options(every, "batch")).look()
    for name in names:
        if name not in found:
            _console().print(f"There is no queue {name} to land.", soft_wrap=True)


def _schemas(file: Path | None) -> dict[str, str]:
    if file is None:
        return {}
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, str])
    except msgspec.DecodeError as exc:
        raise InvalidArgument(
            f'{file} is not JSON such as {{"orders": "id INT, total DOUBLE"}}: {exc}'
        ) from exc


def _existing(path: str) -> Lake:
    from penstock.pipeline.lake import Lake

    lake = Lake(path)
    if not lake.own.exists():
        raise InvalidArgument(f"{lake.root} is not a lake: run the pipeline first, or name another")
    return lake


def _options(connection: Connection) -> dict[str, str]:
    """The connection as options for Spark, whose executors talk to the server themselves."""
    given = connection.options()
    found = {
        "url": connection.url,
        "username": given.get("username"),
        "password": given.get("password"),
        "token": given.get("token"),
        "caFile": connection.ca,
        "timeoutSeconds": str(connection.timeout),
    }
    return {name: value for name, value in found.items() if value}


def _master(given: str | None) -> str | None:
    """Under spark-submit, the master has already been decided."""
    if given is not None or "SPARK_ENV_LOADED" in os.environ:
        return given
    return "local[*]"


def _console() -> Console:
    return Console(stderr=True)


@contextmanager
def _live() -> Iterator[Live]:
    console = _console()
    with Live(
        console=console, refresh_per_second=4, transient=True, auto_refresh=console.is_terminal
    ) as live:
        yield live


def _shown(progress: Progress) -> Table:
    table = Table("messages", "events", "rows/s", "waiting", "batches", "last batch")
    table.add_row(
        f"{progress.rows.get('bronze', 0):,}",
        f"{progress.rows.get('events', 0):,}",
        f"{progress.rows_per_second:,.0f}",
        f"{progress.lag:,}",
        f"{progress.batches:,}",
        f"{progress.batch_seconds:.1f} s",
    )
    return table


def _compacting(rows: Iterable[Compacting]) -> Table:
    table = Table("table", "files", "became", "now")
    for each in rows:
        table.add_row(each.table, f"{each.done.before:,}", f"{each.done.after:,}", each.directory)
    return table


@contextmanager
def _signals(stop: threading.Event) -> Iterator[None]:
    """SIGINT and SIGTERM end a run in good order; the batch under way may be run again later."""
    before = {
        number: signal.signal(number, lambda *_: stop.set())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _refusals() -> Iterator[None]:
    """Errors as a sentence, not as a traceback."""
    if find_spec("pyspark") is None:
        exits.usage("Spark is not installed: pip install 'penstock[spark]'")
    try:
        yield
    except PenstockError as exc:
        # What the server has answered a worker of Spark counts, rather than that a query failed.
        exits.fail(exc, reason=getattr(exc, "reason", ""))
    except OSError as exc:
        exits.stop(f"the lake cannot be read or written: {exc}", exits.STORE)
