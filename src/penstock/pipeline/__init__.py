"""The pipeline: from queues to bronze, silver and gold, and the report. See docs/pipeline.md."""

from __future__ import annotations
