"""What can go wrong in a pipeline.

::

    PenstockError
    └── PipelineError
        ├── LakeInUse       lake_in_use: another process has the lake
        ├── LakeDamaged     lake_damaged: a file that is needed is missing
        └── QueryFailed     query_failed: a Spark query ended with an error
"""

from __future__ import annotations

from penstock.errors import PenstockError

__all__ = ["LakeDamaged", "LakeInUse", "PipelineError", "QueryFailed"]


class PipelineError(PenstockError):
    """The pipeline cannot go on."""

    code = "pipeline_error"


class LakeInUse(PipelineError):
    """Another process has the lake."""

    code = "lake_in_use"


class LakeDamaged(PipelineError):
    """A landed file, or a log entry that a job has yet to read, is missing."""

    code = "lake_damaged"


class QueryFailed(PipelineError):
    """A Spark query ended with an error. `reason` is its code, if it is one of Penstock's."""

    code = "query_failed"

    def __init__(self, text: str, *, reason: str = "") -> None:
        super().__init__(text)
        self.reason = reason
