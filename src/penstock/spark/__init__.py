"""Penstock for Spark: ``spark.read.format("penstock")`` and its siblings.

Spark finds the format by itself, through the module `pyspark_penstock`. See docs/spark.md.
"""

from __future__ import annotations
