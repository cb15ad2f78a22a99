from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.mongo_server import stop_mongo
from tests.redis_cluster import stop_cluster
from tests.redis_server import stop_redis

# A shared machine is sometimes slow, and a slow example is no failure. In CI the examples are the
# same in every run, so that a red build can be reproduced; on a laptop they vary and find more.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")

_ROOT = Path(__file__).parent

# Each process begins with its share of the tests, and who is done helps another from its end. So
# what takes long comes first in a share. Spark is in the first alone: it is started once, and its
# JVM gets faster with every test. Who starts JVMs of his own comes when it is through: for all of
# them at once two cores are too few. The short tests fill up what is left.
_SPARK = "spark"
_LONG = [
    "scaleout",
    "crash",
    "simulation",
    "examples",
    "http",
    "mongo",
    "push",
    "redis",
    "faults",
    "ingest",
]
_OWN_JVM = {"test_cluster.py", "test_object_store.py"}

# The default run is to end within three minutes, so these are left to `make test-slow`: whatever
# starts Redis or MongoDB, and what takes long because it waits or starts many processes or JVMs.
_SLOW = (
    "redis",
    "mongo",
    "scaleout",
    "cli/test_following",
    "cli/test_standard_streams",
    "crash/test_http_crash",
    "examples",
    "http/test_hostile_clients",
    "http/test_many_connections",
    "http/test_operations_page",
    "http/test_schemathesis",
    "http/test_settings",
    "http/test_starting_and_stopping",
    "ingest/test_command",
    "push/test_graphs",
    "push/test_kill",
    "simulation/test_planted_faults",
    "spark/test_cli",
    "spark/test_cluster",
    "spark/test_dependencies",
    "spark/test_docs",
    "spark/test_events_in_redis",
    "spark/test_exactly_once",
    "spark/test_gold",
    "spark/test_object_store",
    "spark/test_pipeline",
    "spark/test_signals",
    "spark/test_silver_days",
    "spark/test_stream",
    "spark/test_trouble",
    "spark/test_upgrade",
    "spark/test_versions",
)


def pytest_configure() -> None:
    # In the background of a shell, and after nohup, these are ignored, and would be in every
    # process that a test starts and interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """What `make test` leaves out it does not import either, in each of its processes."""
    if config.option.markexpr != "not slow" or not collection_path.is_relative_to(_ROOT):
        return None
    name = collection_path.relative_to(_ROOT).as_posix()
    return any(part in name for part in _SLOW) or None


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None]:
    for item in items:
        if any(part in item.nodeid for part in _SLOW):
            item.add_marker("slow")
    yield  # those that were not asked for are left out
    parts: dict[str, list[pytest.Item]] = {name: [] for name in (_SPARK, *_LONG, "JVM", "")}
    for item in items:
        path = item.path.relative_to(_ROOT)
        name = "JVM" if path.name in _OWN_JVM else path.parts[0]
        parts[name if name in parts else ""].append(item)
    spark, short = parts.pop(_SPARK), parts.pop("")
    processes = getattr(config, "workerinput", {"workercount": 1})["workercount"]
    room = max(0, len(items) // processes - len(spark))
    long = [item for part in parts.values() for item in part]
    items[:] = [*spark, *short[:room], *long, *short[room:]]


def pytest_collection_finish() -> None:
    """What thousands of tests are made of stays: it need not be looked through again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)


def pytest_unconfigure() -> None:
    stop_redis()
    stop_cluster()
    stop_mongo()
