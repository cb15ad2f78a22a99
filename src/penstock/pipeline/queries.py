"""Spark's errors, as one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from penstock.pipeline.errors import QueryFailed
from penstock.spark.errors import DataLoss, Refused, Unreachable

__all__ = ["failed", "reason_of", "told_in_one_sentence"]

_LOST, _REFUSED, _UNREACHABLE = (
    f"{each.__module__}.{each.__qualname__}: " for each in (DataLoss, Refused, Unreachable)
)


@contextmanager
def told_in_one_sentence(what: str) -> Iterator[None]:
    """Raises `QueryFailed` if a query in the block fails."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as exc:
        raise failed(what, exc) from exc


def failed(what: str, error: Exception) -> QueryFailed:
    """What a query ended with. Of an error of a worker, Spark has the text alone."""
    line = reason_of(error)
    code = ""
    if line.startswith(_LOST):
        code = DataLoss.code
    elif line.startswith(_UNREACHABLE):
        code = Unreachable.code
    elif line.startswith(_REFUSED):
        code = line.removeprefix(_REFUSED).partition(": ")[0]
    return QueryFailed(f"{what}: {line}", reason=code)


def reason_of(error: Exception) -> str:
    """The most telling line of an error, instead of three tracebacks."""
    lines = [line.strip(" \t:") for line in str(error).splitlines()]
    # What Py4J says first names none of it.
    lines = [line for line in lines if not line.startswith("An error occurred while calling")]
    ours = [line for line in lines if line.startswith("penstock.")]
    return ours[-1] if ours else next((line for line in lines if line), type(error).__name__)
