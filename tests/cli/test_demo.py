"""What ``python -m penstock.demo`` does."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from penstock.demo import run


async def test_the_demo_says_what_happened_and_what_to_do_next(tmp_path: Path) -> None:
    out = io.StringIO()
    await run(str(tmp_path / "data"), Console(file=out, width=200))
    text = out.getvalue()
    assert "durability 'fsync'" in text
    assert "Penstock" in text
    assert f"penstock wal inspect {tmp_path / 'data'}" in text


async def test_the_demo_can_be_run_again_and_goes_on_where_it_was(tmp_path: Path) -> None:
    texts = []
    for _ in range(2):
        out = io.StringIO()
        await run(str(tmp_path / "data"), Console(file=out, width=200))
        texts.append(out.getvalue())
    assert "holds 3 messages" in texts[0]
    assert "holds 6 messages" in texts[1]
    assert "0 of them not settled" in texts[1]
