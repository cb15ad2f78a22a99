"""As little of a client as the tests need: the standard library's, with the answer as a value."""

from __future__ import annotations

import base64
import json
from http.client import HTTPConnection
from typing import Any, NamedTuple

__all__ = ["Answer", "Client", "basic"]


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """One user; a connection for each request, so that nothing is left behind."""

    def __init__(self, port: int, name: str | None = None, password: str = "") -> None:
        self.port = port
        self._headers = {} if name is None else {"Authorization": basic(name, password)}

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | str | None = None,
        **headers: str,
    ) -> Answer:
        """Header names are given with underscores for dashes."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection = HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            content = body.encode() if isinstance(body, str) else body
            connection.request(method, path, content, self._headers | named)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read())
        finally:
            connection.close()

    def push(self, group: str, content: bytes | str = "hello", **headers: str) -> Answer:
        return self.ask("POST", "/queue/push", content, consumerGroup=group, **headers)

    def pop(self, group: str) -> Answer:
        return self.ask("GET", "/queue/pop", consumerGroup=group)

    def ack(self, group: str, id: str) -> Answer:
        return self.ask("POST", f"/queue/ack?id={id}", consumerGroup=group)

    def nack(self, group: str, id: str, reason: str = "") -> Answer:
        return self.ask("POST", f"/queue/nack?id={id}&reason={reason}", consumerGroup=group)

    def extend(self, group: str, id: str, seconds: object) -> Answer:
        path = f"/queue/extend-visibility?id={id}&seconds={seconds}"
        return self.ask("POST", path, consumerGroup=group)

    def view(self, group: str, **headers: str) -> Answer:
        return self.ask("GET", "/queue/view", consumerGroup=group, **headers)

    def send_json(self, method: str, path: str, value: object, **headers: str) -> Answer:
        return self.ask(method, path, json.dumps(value), Content_Type="application/json", **headers)
