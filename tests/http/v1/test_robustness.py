"""Random requests made from the document, and garbage: never a 5xx, and the server goes on."""

from __future__ import annotations

import base64
import random
import socket
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from tests.http.v1.conftest import ADMIN, Api, Server

_ROUNDS = 40
_ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    2**31,
    2**63,
    2**64,
    10**40,
    0.5,
    -1e308,
    "",
    "default",
    "earliest",
    "2030-01-01T00:00:00Z",
    "9999-12-31T23:59:59-14:00",
    "0001-01-01T00:00:00+14:00",
    "01a1dee3-8e5a-7000-8000-00001648cca2",
    "________-____-7___-8___-____________",
    "2.0.1",
    "2.-1.1",
    "2.99999999999999999999.1",
    "\u0000",
    "ø\U0001f600",
    "x" * 70_000,
    [],
    [None],
    ["default"],
    [["x"]],
    {},
    {"a": {}},
]


class Generator:
    """Values that fit a schema most of the time."""

    def __init__(self, rng: random.Random, schemas: dict[str, Any]) -> None:
        self._rng = rng
        self._schemas = schemas

    def value(self, schema: dict[str, Any], depth: int = 0) -> Any:
        rng = self._rng
        if rng.random() < 0.12 or depth > 6:
            return rng.choice(_ODD)
        if "$ref" in schema:
            return self.value(self._schemas[schema["$ref"].rpartition("/")[2]], depth + 1)
        if "anyOf" in schema:
            return self.value(rng.choice(schema["anyOf"]), depth + 1)
        if "enum" in schema:
            return rng.choice(schema["enum"])
        match schema.get("type"):
            case "object":
                return self._object(schema, depth)
            case "array":
                items = schema.get("items") or {}
                return [self.value(items, depth + 1) for _ in range(rng.randrange(3))]
            case "integer":
                return rng.choice([0, 1, 2, 5, schema.get("maximum", 10), schema.get("minimum", 0)])
            case "number":
                return rng.choice([0, 0.01, 1, 5.5])
            case "boolean":
                return rng.random() < 0.5
            case "null":
                return None
        return rng.choice(_ODD)

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        rng = self._rng
        required = schema.get("required", ())
        found = {
            name: self.value(kind, depth + 1)
            for name, kind in schema.get("properties", {}).items()
            if name in required or rng.random() < 0.4
        }
        if rng.random() < 0.05:
            found["odd"] = rng.choice(_ODD)
        # Not for long: the point is the request, not the wait.
        if "wait_seconds" in found:
            found["wait_seconds"] = rng.choice([0, 0.001, -1, "1"])
        return found


def _header_text(value: Any) -> bytes:
    return str(value).encode().replace(b"\0", b"")[:2000]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_requests_are_never_an_error_of_the_server(api: Api, seed: int) -> None:
    # Given a document of every call, and a few queues.
    rng = random.Random(seed)
    document = api.get("/openapi.json").json
    generate = Generator(rng, document["components"]["schemas"])
    calls = [
        (method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if path.startswith("/v1/")
    ]
    names = [f"fuzz-{seed}", "default", "none"]

    for _ in range(_ROUNDS):
        api.post("/v1/queues", {"name": names[0]})
        api.send("POST", f"/v1/queues/{names[0]}/messages", b"x")
        for method, path, operation in rng.sample(calls, len(calls)):
            # When a request is made that is roughly as the document says.
            query = []
            target = path
            headers: dict[str, str | bytes] = {}
            for one in operation["parameters"]:
                value = generate.value(one["schema"])
                if one["in"] == "path":
                    odd = quote(str(value)[:200], safe="") or "none"
                    name = odd if rng.random() < 0.2 else rng.choice(names)
                    target = target.replace(f"{{{one['name']}}}", name)
                elif rng.random() < 0.5:
                    if one["in"] == "query":
                        query.append(f"{one['name']}={quote(str(value)[:200])}")
                    else:
                        headers[one["name"]] = _header_text(value).replace(b"\n", b"")
            body = None
            if "requestBody" in operation and rng.random() < 0.95:
                content = operation["requestBody"]["content"]
                kind = rng.choice(list(content))
                headers["Content-Type"] = kind
                body = msgspec.json.encode(generate.value(content[kind]["schema"]))
                if rng.random() < 0.1:
                    body = body[: rng.randrange(len(body) + 1)] + rng.choice([b"", b"\xff", b"[["])
            target += "?" + "&".join(query) if query else ""
            reply = api.send(method.upper(), target, body, headers)

            # Then it is answered, as the document says.
            assert reply.status < 500, (method, target, headers, body, reply.body)
            assert str(reply.status) in operation["responses"] or reply.status in (404, 405), (
                method,
                target,
                headers,
                body,
                reply.body,
            )
            if reply.status >= 400:
                assert reply.json["detail"]
                assert reply.json["code"]


_AUTH = b"Authorization: Basic " + base64.b64encode(ADMIN.encode()) + b"\r\n"


@pytest.mark.parametrize(
    "head",
    [
        b"GET /v1/queues/%FF%FE HTTP/1.1\r\n",
        b"GET /v1/queues/\xff HTTP/1.1\r\n",
        b"GET /v1/queues/%2525/messages HTTP/1.1\r\n",
        b"GET /v1/queues/a%2Fb HTTP/1.1\r\n",
        b"GET /v1/queues/a%0Ab HTTP/1.1\r\n",
        b"GET /v1/queues?limit=%FF HTTP/1.1\r\n",
        b"GET /v1/queues?limit=\xff HTTP/1.1\r\n",
        b"GET /v1/queues?after=%00 HTTP/1.1\r\n",
        b"GET //v1//queues HTTP/1.1\r\n",
        b"GET /v1/ HTTP/1.1\r\n",
        b"GET http://[::1/v1/queues HTTP/1.1\r\n",
        b"BREW /v1/queues HTTP/1.1\r\n",
        b"OPTIONS * HTTP/1.1\r\n",
        b"HEAD /v1/queues HTTP/1.1\r\n",
        b"POST /v1/queues HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"nonsense\r\n",
    ],
)
def test_garbage_is_refused_and_the_server_goes_on(server: Server, api: Api, head: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        connection.sendall(head + b"Host: x\r\nConnection: close\r\n" + _AUTH + b"\r\n")
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while part := connection.recv(65536):
            answer += part

    assert not answer.startswith((b"HTTP/1.1 5", b"HTTP/1.0 5")), answer
    assert api.get("/v1/queues?limit=1").status == 200
