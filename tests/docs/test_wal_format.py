"""The page about the log's format shows real bytes, and its tables say what the code says."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from random import Random
from typing import Any, get_args

from penstock import NewMessage
from penstock.broker import Broker
from penstock.core import events
from penstock.storage.wal import record, segment
from penstock.storage.wal.files import DiskFiles
from penstock.storage.wal.segment import file_name
from penstock.storage.wal.store import WalStore
from tests.docs.page import ROOT, table_in

PAGE = "docs/wal-format.md"
LINE = re.compile(r"^([0-9a-f]{8})  ((?:[0-9a-f]{2} ?){1,16}) +(.{1,16})$", re.MULTILINE)


class StandingClock:
    def now_ns(self) -> int:
        return 1_800_000_000_000_000_000


async def write_example(directory: Path) -> bytes:
    """What the page describes; the bytes of the first segment."""
    store = await WalStore.open(
        DiskFiles(directory),
        clock=StandingClock(),
        rng=Random(1),
        segment_bytes=4096,
        random_bytes=Random(2).randbytes,
    )
    async with Broker(store) as broker:
        await broker.create_queue("q")
        await broker.publish("q", [b"hello", NewMessage(body=b"world", priority=5)])
        [delivery] = await broker.receive("q")
        await broker.ack("q", [delivery.receipt])
    return (directory / file_name(1)).read_bytes()


def test_the_bytes_on_the_page_are_those_that_penstock_writes(tmp_path: Path) -> None:
    written = asyncio.run(write_example(tmp_path / "data"))
    shown = LINE.findall((ROOT / PAGE).read_text(encoding="utf-8"))
    assert len(shown) > 10
    for offset, digits, _ in shown:
        expected = bytes.fromhex(digits)
        at = int(offset, 16)
        assert written[at : at + len(expected)] == expected, offset


def test_the_table_of_kinds_has_every_event_with_its_fields_in_order() -> None:
    stated = {int(row[0]): row[1] for row in table_in(PAGE, "kind")}
    assert stated.pop(record.MARK) == "sync mark"
    kinds: tuple[Any, ...] = get_args(events.Event)
    assert stated == {kind.__struct_config__.tag: kind.__name__ for kind in kinds}
    fields = {int(row[0]): row[2] for row in table_in(PAGE, "kind")}
    for kind in kinds:
        if kind is not events.Published:
            names = ", ".join(kind.__struct_encode_fields__)
            assert fields[kind.__struct_config__.tag] == names, kind.__name__


def test_the_sizes_on_the_page_are_those_of_the_code() -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    assert f"{segment.HEADER_BYTES} bytes in all" in text
    assert f"{record.HEADER_BYTES} bytes and the payload" in text
    assert f"{record.MARK_BYTES} bytes in all" in text
    assert f"format version {segment.VERSION}" in text
