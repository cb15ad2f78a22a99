"""The page about running a server: its commands work, its figures and settings exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from penstock import errors
from penstock.settings import Settings
from tests.docs.page import blocks_in, table_in
from tests.http.client import Client
from tests.http.server import running

PAGE = "docs/operations.md"


def run(script: str, directory: Path) -> None:
    """As a shell does that stops at the first failure, with our `penstock`."""
    penstock = f"{sys.executable} -c 'from penstock.cli import main; main()'"
    script = f'set -e\npenstock() {{ {penstock} "$@"; }}\n{script}'
    done = subprocess.run(
        ["sh", "-c", script], cwd=directory, check=False, capture_output=True, timeout=60
    )
    assert done.returncode == 0, done


def test_a_backup_of_a_running_server_can_be_restored(log: Path, tmp_path: Path) -> None:
    backup, restore = blocks_in(PAGE, "sh")
    data = str(tmp_path / "data")
    # Given a running server with messages, one of them consumed, and a user
    with running(data, log) as server:
        user, admin = server.client("user", "password"), server.client("admin", "adminpassword")
        for content in ("consumed", "left"):
            assert user.push("orders", content).status == 200
        user.ack("orders", user.pop("orders").json["id"])
        account = {"username": "billing", "password": "a long password"}
        assert admin.send_json("POST", "/admin/subscribers", account).status == 201
        # When it is backed up, goes on for a while, and its directory is restored
        run(backup, tmp_path)
        assert user.push("orders", "later").status == 200
    run(restore, tmp_path)
    # Then it is as it was
    with running(data, log) as server:
        admin = server.client("admin", "adminpassword")
        viewed = [(one["content"], one["consumed"]) for one in admin.view("orders").json]
        assert viewed == [("consumed", True), ("left", False)]
        billing = server.client("billing", "a long password")
        assert billing.pop("orders").json["content"] == "left"


def test_the_queries_use_figures_that_exist(user: Client, group: str) -> None:
    user.push(group)
    given = user.ask("GET", "/metrics").body.decode()
    queries = "\n".join(blocks_in(PAGE, "promql"))
    named = set(re.findall(r"penstock_\w+", queries))
    assert len(named) >= 5
    for name in named:
        assert re.search(rf"^{name}[ {{]", given, re.MULTILINE), name
    for label, value in re.findall(r'(\w+)="([^"]+)"', queries):
        assert f'{label}="{value}"' in given, (label, value)


def names_in(heading: str, pattern: str) -> set[str]:
    """Of the first column of a table."""
    return {name for row in table_in(PAGE, heading) for name in re.findall(pattern, row[0])}


def test_the_table_of_figures_has_every_one(user: Client, group: str) -> None:
    user.push(group)
    given = user.ask("GET", "/metrics").body.decode()
    real = set(re.findall(r"^# TYPE (penstock_\w+) ", given, re.MULTILINE))
    assert names_in("figure", r"penstock_\w+") == real


def test_the_settings_to_decide_on_exist() -> None:
    stated = names_in("setting to decide on", r"PENSTOCK_\w+")
    assert stated <= {f"PENSTOCK_{name.upper()}" for name in Settings.model_fields}
    assert len(stated) > 10


def test_every_error_of_the_store_is_on_the_page() -> None:
    kinds = [getattr(errors, name) for name in errors.__all__]
    real = {kind.code for kind in kinds if issubclass(kind, errors.StorageError)}
    stated = {row[0] for row in table_in(PAGE, "error of the store")}
    assert stated == real - {errors.StorageError.code}
