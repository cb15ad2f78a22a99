"""A wrong password opens nothing, anywhere; guessing gets slow, and others do not notice."""

from __future__ import annotations

import time
from pathlib import Path

from tests.http.server import running
from tests.http.test_roles import ADMIN, USER


def test_a_wrong_password_opens_nothing_and_guessing_is_throttled(log: Path) -> None:
    with running("memory:", log) as server:
        user = server.client("user", "password")
        assert user.push("orders").status == 200
        # When wrong passwords are tried on every endpoint
        statuses = []
        for index, (method, path) in enumerate(USER + ADMIN):
            wrong = server.client("user" if index % 2 else "admin", f"wrong {index}")
            answer = wrong.ask(method, path, consumerGroup="orders")
            statuses.append(answer.status)
            if answer.status == 429:
                assert int(answer.headers["retry-after"]) >= 1
        # Then none is let in, and soon none is even checked
        assert set(statuses) == {401, 429}
        assert statuses[:10] == [401] * 10
        # And who was in stays in, and is not slowed down
        began = time.monotonic()
        for _ in range(20):
            assert user.push("orders").status == 200
        assert time.monotonic() - began < 2
