"""The outbox on the page for those who come from another queue: each row is moved once."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

from tests.docs.page import python_in
from tests.http.client import Client
from tests.http.server import Server


def test_an_outbox_whose_mover_dies_in_between_is_moved_once_and_in_order(
    server: Server, admin: Client, tmp_path: Path
) -> None:
    [piece] = python_in("docs/coming-from.md")
    program = piece.source.replace("Client(username", f"Client({server.url!r}, username")

    def move() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path,
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )

    # Given an outbox from which nothing can be removed for now
    bodies = [f"job {number}" for number in range(1500)]
    database = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    database.execute("CREATE TABLE outbox (id INTEGER PRIMARY KEY, body TEXT)")
    database.executemany("INSERT INTO outbox (body) VALUES (?)", [(body,) for body in bodies])
    refusal = "SELECT RAISE(ABORT, 'not now')"
    database.execute(f"CREATE TRIGGER refuse BEFORE DELETE ON outbox BEGIN {refusal}; END")
    # When it is moved as far as that goes, and once more after it can be
    assert "not now" in move().stderr
    assert admin.ask("GET", "/v1/queues/jobs").json["messages"] == 1000
    database.execute("DROP TRIGGER refuse")
    assert move().stdout == "1500\n"
    # Then each job is in the queue once, in its order, and the outbox is empty
    assert database.execute("SELECT count(*) FROM outbox").fetchone() == (0,)
    pages = [
        admin.ask("GET", f"/v1/queues/jobs/messages?start={start}&limit=1000").json["messages"]
        for start in (0, 1000)
    ]
    assert [message["body"] for page in pages for message in page] == bodies
    database.close()
    admin.ask("DELETE", "/v1/queues/jobs")
