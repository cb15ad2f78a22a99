"""Spark's side: the format and the pipeline, beside Spark's own parquet and rate sources."""

from __future__ import annotations
