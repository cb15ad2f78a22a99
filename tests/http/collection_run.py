"""Runs a request collection as Postman does, as far as ours goes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tests.http.client import Answer, Client

__all__ = ["Run", "requests_of"]

_STATUS = re.compile(r"to\.have\.status\((\d+)\)")
_ONE_OF = re.compile(r"to\.be\.oneOf\(\[([\d, ]+)\]\)")
_SAVE = re.compile(r'collectionVariables\.set\("(\w+)", pm\.response\.json\(\)(.*)\);')
_PLACE = re.compile(r"\.(\w+)|\[(\d+)\]")
_VARIABLE = re.compile(r"\{\{(\w+)\}\}")


def requests_of(collection: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Of all folders, in their order."""
    for item in collection["item"]:
        if "item" in item:
            yield from requests_of(item)
        else:
            yield item


class Run:
    """Sends one request after the other; ``variables`` grow by what the answers give."""

    def __init__(self, collection: Mapping[str, Any], server: Client, admin: Client) -> None:
        self._without_name = server
        self._as_admin = admin
        self.variables = {one["key"]: one["value"] for one in collection["variable"]}

    def send(self, item: Mapping[str, Any]) -> Answer:
        """Raises `AssertionError` when the answer is not what the item's tests say."""
        request = item["request"]
        is_open = request.get("auth", {}).get("type") == "noauth"
        client = self._without_name if is_open else self._as_admin
        path = self._filled(request["url"]["raw"]).removeprefix(self.variables["baseUrl"])
        headers = {
            one["key"]: self._filled(one["value"])
            for one in request["header"]
            if "disabled" not in one
        }
        body = self._filled(request["body"]["raw"]) if "body" in request else None
        answer = client.ask(request["method"], path, body, **headers)
        for event in item["event"]:
            for line in event["script"]["exec"]:
                self._test(line, answer, item["name"])
        return answer

    def _filled(self, text: str) -> str:
        return _VARIABLE.sub(lambda found: str(self.variables[found[1]]), text)

    def _test(self, line: str, answer: Answer, name: str) -> None:
        if found := _STATUS.search(line):
            assert answer.status == int(found[1]), (name, answer)
        elif found := _ONE_OF.search(line):
            assert answer.status in json.loads(f"[{found[1]}]"), (name, answer)
        else:
            found = _SAVE.search(line)
            assert found is not None, f"what does {line} mean?"
            value = answer.json
            for field, index in _PLACE.findall(found[2]):
                value = value[field] if field else value[int(index)]
            self.variables[found[1]] = value
