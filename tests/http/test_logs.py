"""The log: a line a request, without secrets, from a level that can be changed."""

from __future__ import annotations

import json
import logging

import pytest
import structlog

from penstock.logs import configure_logs
from tests.http.client import Client
from tests.http.server import Server, lines_of


def test_a_request_is_one_line(user: Client, server: Server, group: str) -> None:
    user.push(group, "secret content", X_Request_Id=group)
    [line] = lines_of(server, group)
    assert line.keys() == {
        "request_id",
        "method",
        "path",
        "group",
        "status",
        "milliseconds",
        "event",
        "level",
        "timestamp",
    }
    assert (line["method"], line["path"], line["group"]) == ("POST", "/queue/push", group)
    assert (line["status"], line["level"]) == (200, "info")


@pytest.mark.parametrize(
    ("method", "path", "logged", "status"),
    [
        ("GET", "/v1/queues/{group}/messages?limit=1", "/v1/queues/{group}/messages", 404),
        ("GET", "/{group}/nothing", "/{group}/nothing", 404),
        ("DELETE", "/queue/push", "/queue/push", 405),
        ("HEAD", "/livez", "/livez", 200),
        ("GET", "/a" + "b" * 1000, "/a" + "b" * 298, 404),
    ],
)
def test_a_line_has_the_method_and_the_path_of_the_request(
    user: Client, server: Server, group: str, method: str, path: str, logged: str, status: int
) -> None:
    user.ask(method, path.format(group=group), X_Request_Id=group)
    [line] = lines_of(server, group)
    found = (line["method"], line["path"], line["status"])
    assert found == (method, logged.format(group=group), status)


def test_neither_contents_nor_passwords_are_logged(
    server: Server, user: Client, admin: Client, group: str
) -> None:
    user.push(group, "very-secret content")
    server.client("somebody", "a-very-secret-guess").pop(group)
    for password in ("very-secret", ["very-secret"]):
        value = {"username": group, "password": password}
        admin.send_json("POST", "/admin/subscribers", value, X_Request_Id=group)
    assert len(lines_of(server, group)) == 2
    text = server.log_text()
    for secret in ("very-secret", "adminpassword", "dXNlcjpwYXNzd29yZA"):
        assert secret not in text


def test_the_level_can_be_changed_while_it_runs(server: Server, admin: Client) -> None:
    def set_level(value: object, name: str = "ROOT") -> int:
        return admin.send_json("POST", f"/actuator/loggers/{name}", value).status

    # When only warnings are wanted, then requests are no longer logged
    assert set_level({"configuredLevel": "WARN"}) == 204
    shown = admin.ask("GET", "/actuator/loggers").json
    assert shown["loggers"]["ROOT"]["effectiveLevel"] == "WARN"
    admin.push("orders", X_Request_Id="quiet")
    # When information is wanted again, then they are
    assert set_level({"configuredLevel": "info"}) == 204
    admin.push("orders", X_Request_Id="heard")
    assert set_level({"configuredLevel": "LOUD"}) == 400
    assert set_level({}) == 400
    assert set_level({"configuredLevel": "INFO"}, "other") == 404
    assert (len(lines_of(server, "quiet")), len(lines_of(server, "heard"))) == (0, 1)


def test_what_others_log_is_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    # Given what the store, the web server or a library says through Python's own logging
    before, handlers = structlog.get_config(), logging.getLogger().handlers[:]
    try:
        configure_logs("warning", "json")
        logger = logging.getLogger("penstock.storage")
        logger.info("not wanted")
        try:
            raise OSError("the disk")
        except OSError:
            logger.exception("a %s failed", "write")
    finally:
        structlog.configure(**before)
        logging.getLogger().handlers[:] = handlers
    # Then it is one line like any other
    [text] = capsys.readouterr().err.splitlines()
    line = json.loads(text)
    assert (line["event"], line["level"]) == ("a write failed", "error")
    assert line["logger"] == "penstock.storage"
    assert line["exception"].endswith("OSError: the disk")


def test_there_is_a_form_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    before, handlers = structlog.get_config(), logging.getLogger().handlers[:]
    try:
        configure_logs("warning", "console")
        logger = structlog.get_logger()
        logger.info("not wanted")
        logger.warning("wanted", number=7)
    finally:
        structlog.configure(**before)
        logging.getLogger().handlers[:] = handlers
    [line] = capsys.readouterr().err.splitlines()
    assert "wanted" in line
    assert "number=7" in line
    assert not line.startswith("{")
