"""Penstock for Spark: ``spark.read.format("penstock")`` and its siblings.

Spark finds the format by itself, through the module `pyspark_penstock`. See docs/spark.md.
"""

from __future__ import annotations

import pyspark

from penstock.errors import MissingExtra

_OLDEST = (4, 1)

if tuple(map(int, pyspark.__version__.split(".")[:2])) < _OLDEST:
    raise MissingExtra(
        f"PySpark {pyspark.__version__} is too old: use 4.1 or newer, such as pip install "
        "'penstock[spark]' brings"
    )
