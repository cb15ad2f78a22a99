"""Three servers, and something breaks under load: nothing is lost, nothing held by two at once.

What each fault costs is counted by ``python -m tests.scaleout``.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.scaleout.faults import FAULTS, Fault
from tests.scaleout.run import run_fault
from tests.scaleout.topology import Topology, topology

pytestmark = pytest.mark.asyncio(loop_scope="module")

MESSAGES = int(os.environ.get("PENSTOCK_FAULT_MESSAGES", "150"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plain() -> AsyncIterator[Topology]:
    async with topology(archived=False) as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def archived() -> AsyncIterator[Topology]:
    async with topology(archived=True) as found:
        yield found


def faults(*, archived: bool) -> list[Fault]:
    return [fault for fault in FAULTS if fault.archived == archived and not fault.is_slow]


@pytest.mark.parametrize("fault", faults(archived=False), ids=lambda fault: fault.name)
async def test_nothing_is_lost(plain: Topology, fault: Fault) -> None:
    await run_fault(plain, fault, MESSAGES)


@pytest.mark.parametrize("fault", faults(archived=True), ids=lambda fault: fault.name)
async def test_nothing_is_lost_with_an_archive(archived: Topology, fault: Fault) -> None:
    await run_fault(archived, fault, MESSAGES)
