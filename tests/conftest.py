from __future__ import annotations

import os

from hypothesis import settings

from tests.mongo_server import stop_mongo
from tests.redis_cluster import stop_cluster
from tests.redis_server import stop_redis

# A shared machine is sometimes slow, and a slow example is no failure. In CI the examples are the
# same in every run, so that a red build can be reproduced; on a laptop they vary and find more.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_unconfigure() -> None:
    stop_redis()
    stop_cluster()
    stop_mongo()
