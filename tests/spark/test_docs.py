"""The page about Spark: its Python runs, and its tables say what the code says."""

from __future__ import annotations

from typing import Any

from penstock.spark import options
from penstock.spark.options import read_options
from penstock.spark.schema import read_schema
from tests.docs.page import ROOT, python_in, table_in
from tests.spark.helpers import World

PAGE = "docs/spark.md"


def names_in(heading: str) -> list[str]:
    return [name for row in table_in(PAGE, heading) for name in row[0].split("`, `")]


def test_the_pieces_of_the_page_run_one_after_the_other(world: World) -> None:
    names: dict[str, Any] = {"spark": world.spark}
    for piece in python_in(PAGE):
        source = piece.padded.replace("http://127.0.0.1:8080", world.options["url"])
        exec(compile(source, str(ROOT / PAGE), "exec"), names)


def test_the_table_of_options_has_every_one() -> None:
    known = {*options._READ, *options._BATCH, *options._STREAM, *options._WRITE}

    assert sorted(names_in("option")) == sorted(known)


def test_the_tables_of_columns_are_the_schemas() -> None:
    given = {"url": "http://x", "subscribe": "q"}

    messages = read_schema(read_options(given, "batch")).fieldNames()
    events = read_schema(read_options({**given, "stream": "events"}, "batch")).fieldNames()

    hinted = read_schema(read_options({**given, "includePartitionHints": "true"}, "batch"))

    assert sorted(names_in("column")) == sorted(messages)
    assert [*messages, *names_in("hint")] == hinted.fieldNames()
    assert sorted(names_in("column of events")) == sorted(events)
