"""Spark's errors, as one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from penstock.pipeline.errors import QueryFailed

__all__ = ["reason_of", "told_in_one_sentence"]


@contextmanager
def told_in_one_sentence(what: str) -> Iterator[None]:
    """Raises `QueryFailed` if a query in the block fails."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as exc:
        raise QueryFailed(f"{what}: {reason_of(exc)}") from exc


def reason_of(error: Exception) -> str:
    """The most telling line of an error, instead of three tracebacks."""
    lines = [line.strip(" \t:") for line in str(error).splitlines()]
    # What Py4J says first names none of it.
    lines = [line for line in lines if not line.startswith("An error occurred while calling")]
    ours = [line for line in lines if line.startswith("penstock.")]
    return ours[-1] if ours else next((line for line in lines if line), type(error).__name__)
