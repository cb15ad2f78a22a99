"""Handlers that the command line is told to call."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from penstock.ingest import IngestMessage


def note(batch: Sequence[IngestMessage]) -> None:
    """One line a message into the file that HANDLED names."""
    with Path(os.environ["HANDLED"]).open("a") as file:
        file.writelines(f"{message.tenant_code} {message.file_path}\n" for message in batch)
