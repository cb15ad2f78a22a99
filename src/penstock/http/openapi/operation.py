"""What a route says about itself: its parameters, bodies, answers and errors, for `/openapi.json`.

A schema is either a type that msgspec knows, or a piece of JSON schema as a dict.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from penstock.errors import PenstockError

__all__ = ["JSON", "Answer", "Body", "Operation", "Parameter", "form", "gives"]

Schema = Any
JSON = "application/json"


class Parameter(NamedTuple):
    name: str
    where: Literal["path", "query", "header"]
    about: str
    schema: Mapping[str, Any]
    required: bool = False


class Body(NamedTuple):
    """By content type."""

    types: Mapping[str, Schema]
    required: bool = True


class Answer(NamedTuple):
    """`types` are by content type; without any there is no body. `headers` say what each means."""

    status: int
    about: str
    types: Mapping[str, Schema] = {}
    headers: Mapping[str, str] = {}


class Operation(NamedTuple):
    """What the route's role and rate limit imply (401, 403, 429) is added to it."""

    summary: str
    tag: str
    answers: tuple[Answer, ...]
    parameters: tuple[Parameter, ...] = ()
    body: Body | None = None
    errors: tuple[type[PenstockError], ...] = ()
    about: str = ""


def form(schema: Schema, *, required: bool = True) -> Body:
    """A body in JSON."""
    return Body({JSON: schema}, required)


def gives(schema: Schema, about: str, status: int = 200) -> tuple[Answer, ...]:
    """One answer, in JSON."""
    return (Answer(status, about, {JSON: schema}),)
