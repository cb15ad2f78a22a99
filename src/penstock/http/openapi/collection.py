"""A request collection for Postman (format 2.1), made from the OpenAPI document.

``python -m penstock.http.openapi.collection`` prints it. It holds every call of the document: first
those of the story, in its order, each with a test of its status; then the others, which pass with
any status that the document has for them.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Iterator
from typing import Any

from penstock.broker import Broker
from penstock.http.app import create_app
from penstock.http.exchange import IncomingRequest
from penstock.http.openapi.story import STORY, VARIABLES, Step
from penstock.logs import configure_logs
from penstock.settings import Settings
from penstock.storage.registry import open_store

__all__ = ["document_of_this_version", "make_collection"]

_SCHEMA = "https://schema.getpostman.com/json/collection/v2.1.0/collection.json"
_OTHERS = "More"
_JSON = "application/json"
# What a parameter is unless a step says otherwise; any other is left out, or is its own name.
_VALUES = {
    "consumerGroup": "{{group}}",
    "id": "{{messageId}}",
    "queue": "{{queue}}",
    "subscription": "{{subscription}}",
}


def make_collection(document: dict[str, Any]) -> dict[str, Any]:
    """Raises `KeyError` when the story has a call that the document has not."""
    paths = document["paths"]
    folders: dict[str, list[Any]] = {}
    told = set()
    for folder, steps in STORY.items():
        folders[folder] = []
        for step in steps:
            operation = paths[step.path][step.method.lower()]
            folders[folder].append(_item(step, operation))
            told.add((step.method, step.path))
    others = [
        _item(Step(method.upper(), path), operation, is_told=False)
        for path, operations in paths.items()
        for method, operation in operations.items()
        if (method.upper(), path) not in told
    ]
    if others:
        folders[_OTHERS] = others
    info = document["info"]
    return {
        "info": {
            "name": info["title"],
            "description": info["description"],
            "version": info["version"],
            "schema": _SCHEMA,
        },
        "auth": {
            "type": "basic",
            "basic": [
                {"key": key, "value": f"{{{{{key}}}}}", "type": "string"}
                for key in ("username", "password")
            ],
        },
        "variable": [{"key": key, "value": value} for key, value in VARIABLES.items()],
        "item": [{"name": name, "item": items} for name, items in folders.items()],
    }


def _item(step: Step, operation: dict[str, Any], *, is_told: bool = True) -> dict[str, Any]:
    request: dict[str, Any] = {
        "method": step.method,
        "description": operation["description"],
        "header": list(_named(step, operation, "header")),
        "url": _url(step, operation),
    }
    if not operation["security"]:
        request["auth"] = {"type": "noauth"}
    content = operation.get("requestBody", {}).get("content")
    if content and (step.body is not None or not is_told):
        kind = step.content_type or next(iter(content))
        kind = "text/plain" if kind == "*/*" else kind
        request["header"].append({"key": "Content-Type", "value": kind})
        request["body"] = _body(step.body if is_told else {})
    tests = _tests(step, operation) if is_told else _any_documented(operation)
    return {
        "name": step.name or operation["summary"],
        "event": [{"listen": "test", "script": {"type": "text/javascript", "exec": tests}}],
        "request": request,
        "response": [],
    }


def _named(step: Step, operation: dict[str, Any], where: str) -> Iterator[dict[str, Any]]:
    for one in operation["parameters"]:
        if one["in"] == where:
            name = one["name"]
            value = step.values.get(name) or (_VALUES.get(name, name) if one["required"] else None)
            parameter = {"key": name, "value": value or "", "description": one["description"]}
            yield parameter if value else {**parameter, "disabled": True}


def _url(step: Step, operation: dict[str, Any]) -> dict[str, Any]:
    path = re.sub(
        r"\{(\w+)\}",
        lambda found: step.values.get(found[1]) or _VALUES.get(found[1], found[1]),
        step.path,
    )
    query = list(_named(step, operation, "query"))
    used = "&".join(f"{one['key']}={one['value']}" for one in query if "disabled" not in one)
    url = {
        "raw": f"{{{{baseUrl}}}}{path}" + (f"?{used}" if used else ""),
        "host": ["{{baseUrl}}"],
        "path": path.strip("/").split("/"),
    }
    return {**url, "query": query} if query else url


def _body(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        return {"mode": "raw", "raw": value}
    language = {"raw": {"language": "json"}}
    return {"mode": "raw", "raw": json.dumps(value, indent=2), "options": language}


def _tests(step: Step, operation: dict[str, Any]) -> list[str]:
    status = step.status or min(int(code) for code in operation["responses"] if code < "300")
    lines = [f'pm.test("{status}", () => pm.response.to.have.status({status}));']
    for variable, place in step.saves.items():
        dot = "" if place.startswith("[") else "."
        lines.append(f'pm.collectionVariables.set("{variable}", pm.response.json(){dot}{place});')
    return lines


def _any_documented(operation: dict[str, Any]) -> list[str]:
    codes = ", ".join(sorted(code for code in operation["responses"] if code < "500"))
    return [f'pm.test("documented", () => pm.expect(pm.response.code).to.be.oneOf([{codes}]));']


async def document_of_this_version() -> dict[str, Any]:
    """What ``/openapi.json`` would answer."""
    settings = Settings(data="memory:")
    async with Broker(await open_store(settings.data)) as broker:
        app = await create_app(broker, settings)
        await app.start()  # type: ignore[no-untyped-call]
        try:
            response = await app.handle(IncomingRequest("GET", b"/openapi.json", b"", []))
            assert response.content is not None
            document: dict[str, Any] = json.loads(response.content.body)
            return document
        finally:
            await app.stop()  # type: ignore[no-untyped-call]


def main() -> None:
    configure_logs("error", "json")
    collection = make_collection(asyncio.run(document_of_this_version()))
    sys.stdout.write(json.dumps(collection, indent=2) + "\n")


if __name__ == "__main__":
    main()
