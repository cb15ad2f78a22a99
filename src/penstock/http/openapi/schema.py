"""Pieces of JSON schema, for what has no type of its own."""

from __future__ import annotations

from typing import Any

from penstock.core.limits import NAME_PATTERN

__all__ = ["NAME", "NUMBER", "TEXT", "array_of", "object_of"]

TEXT = {"type": "string"}
NUMBER = {"type": "integer"}
NAME = {"type": "string", "pattern": f"^{NAME_PATTERN}$"}
"""Of a queue or a subscription."""


def object_of(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def array_of(properties: dict[str, Any]) -> dict[str, Any]:
    """Of objects with these properties."""
    return {"type": "array", "items": object_of(properties)}
