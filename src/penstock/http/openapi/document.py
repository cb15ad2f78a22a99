"""``/openapi.json`` and ``/docs``: one document of what the routes say about themselves."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from http import HTTPStatus
from importlib.metadata import version
from inspect import cleandoc
from typing import Any

import msgspec
from blacksheep import Content, Response

from penstock.errors import PenstockError
from penstock.http.errors import LightQError, Problem, Refusal, status_of
from penstock.http.exchange import IncomingRequest
from penstock.http.gate import Route
from penstock.http.openapi.operation import JSON, Answer, Operation, Parameter
from penstock.http.openapi.page import docs_page

__all__ = ["Documents", "make_document"]

_OPENAPI = Operation(
    "This document", "operations", (Answer(200, "OpenAPI 3.1.", {JSON: {"type": "object"}}),)
)
_DOCS = Operation(
    "This document as a page",
    "operations",
    (Answer(200, "A page.", {"text/html": {"type": "string"}}),),
)
_SWAGGER = _DOCS._replace(summary="The page, where LightQ has it")
_ABOUT = """A durable message queue over HTTP.

`/v1` is the native API. `/queue` is that of LightQ and Simple Queue Service: a consumer group is a
queue, read through its subscription `default`. `/api` is the topics API. Callers log in by HTTP
Basic, or by a bearer token, which `/auth/local` gives for a name and a password.

Every answer has an `X-Request-Id`, the client's own if it sent one, and its `X-Correlation-Id` if
it sent that."""

# In the order in which they are listed.
_TAGS = {
    "queues": "`/v1`: create, look at, alter, purge and delete queues.",
    "messages": "`/v1`: publish messages; read them without receiving them.",
    "delivery": "`/v1`: lease messages of a subscription, and settle them.",
    "subscriptions": "`/v1`: who reads a queue: from where on, with which filter, after whom.",
    "dead letters": "`/v1`: messages that failed for good.",
    "events": "`/v1`: what happened to each message of a queue.",
    "queue": "`/queue`: the API of LightQ. The header `consumerGroup` names the queue.",
    "subscribers": "`/admin/subscribers`: users, as LightQ has them.",
    "producers": "`/api`, the topics API: publish to whoever subscribed to a topic.",
    "consumers": "`/api`, the topics API: have a URL called for a topic.",
    "users": "`/api`, the topics API: register.",
    "auth": "Tokens and passwords, for all APIs.",
    "operations": "Health, figures, the log, and this description.",
}


class Documents:
    """Their handlers. Each document is made when it is first asked for, and kept."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._routes = [*routes, *self.routes()]

    @cached_property
    def _document(self) -> dict[str, Any]:
        return make_document(self._routes)

    @cached_property
    def _json(self) -> Content:
        return Content(b"application/json", msgspec.json.encode(self._document))

    @cached_property
    def _page(self) -> Content:
        return Content(b"text/html; charset=utf-8", docs_page(self._document).encode())

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/openapi.json", self.openapi, role=None, operation=_OPENAPI),
            Route("GET", "/docs", self.docs, role=None, operation=_DOCS),
            Route("GET", "/swagger-ui/index.html", self.docs, role=None, operation=_SWAGGER),
        ]

    async def openapi(self, request: IncomingRequest) -> Response:
        return Response(HTTPStatus.OK, content=self._json)

    async def docs(self, request: IncomingRequest) -> Response:
        return Response(HTTPStatus.OK, content=self._page)


def make_document(routes: Iterable[Route]) -> dict[str, Any]:
    """An OpenAPI 3.1 document of all the routes."""
    described = []
    for route in routes:
        assert route.operation is not None, f"{route.path} says nothing about itself"
        described.append((route, route.operation))
    tags = {operation.tag for _, operation in described}
    assert tags <= set(_TAGS), f"nothing is said about {tags - set(_TAGS)}"
    schemas = _Schemas(operation for _, operation in described)
    paths: dict[str, dict[str, Any]] = defaultdict(dict)
    for route, operation in described:
        paths[route.path][route.method.lower()] = _describe(route, operation, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock",
            "version": version("penstock"),
            "description": _ABOUT,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "tags": [
            {"name": tag, "description": about} for tag, about in _TAGS.items() if tag in tags
        ],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": schemas.components,
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
            },
        },
    }


class _Schemas:
    """Every type that an operation names becomes a component, and is referred to by its name."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        types: dict[Any, None] = {LightQError: None, Problem: None, Refusal: None}
        for operation in operations:
            groups = [answer.types for answer in operation.answers]
            if operation.body is not None:
                groups.append(operation.body.types)
            for group in groups:
                types |= dict.fromkeys(s for s in group.values() if not isinstance(s, Mapping))
        references, found = msgspec.json.schema_components(
            list(types), ref_template="#/components/schemas/{name}"
        )
        for schema in found.values():
            if "description" in schema:
                schema["description"] = cleandoc(schema["description"])
        self._references = dict(zip(types, references, strict=True))
        self.components: dict[str, Any] = dict(sorted(found.items()))

    def of(self, schema: Any) -> Any:
        return schema if isinstance(schema, Mapping) else self._references[schema]

    def content(self, types: Mapping[str, Any]) -> dict[str, Any]:
        return {kind: {"schema": self.of(schema)} for kind, schema in types.items()}


def _describe(route: Route, operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    about = operation.about
    if route.role is not None:
        about = f"{about}\n\nRole: {route.role.name}.".strip()
    described: dict[str, Any] = {
        "operationId": _operation_id(route),
        "summary": operation.summary,
        "description": about,
        "tags": [operation.tag],
        "security": [] if route.role is None else [{"basic": []}, {"token": []}],
        "parameters": [_parameter(one) for one in operation.parameters],
        "responses": _responses(route, operation, schemas),
    }
    if operation.body is not None:
        described["requestBody"] = {
            "required": operation.body.required,
            "content": schemas.content(operation.body.types),
        }
    return described


def _operation_id(route: Route) -> str:
    words = re.sub(r"\W+", "_", route.path).strip("_")
    return f"{route.method.lower()}_{words}"


def _parameter(one: Parameter) -> dict[str, Any]:
    return {
        "name": one.name,
        "in": one.where,
        "description": one.about,
        "required": one.required,
        "schema": one.schema,
    }


def _responses(route: Route, operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for answer in operation.answers:
        response: dict[str, Any] = {"description": answer.about}
        if answer.types:
            response["content"] = schemas.content(answer.types)
        if answer.headers:
            response["headers"] = {
                name: {"description": about, "schema": {"type": "string"}}
                for name, about in answer.headers.items()
            }
        responses[str(answer.status)] = response
    content = {route.error_form.content_type: {"schema": schemas.of(route.error_form)}}
    for status, texts in sorted(_errors(route, operation).items()):
        responses.setdefault(str(int(status)), {"description": " ".join(texts), "content": content})
    return responses


def _errors(route: Route, operation: Operation) -> dict[HTTPStatus, list[str]]:
    found: dict[HTTPStatus, list[str]] = defaultdict(list)
    for error in operation.errors:
        found[_status(error)].append(f"`{error.code}`: {_first_line(error)}")
    if operation.body is not None and not found[HTTPStatus.REQUEST_ENTITY_TOO_LARGE]:
        found[HTTPStatus.REQUEST_ENTITY_TOO_LARGE].append("The body is too large.")
    if operation.body is not None:
        found[HTTPStatus.UNSUPPORTED_MEDIA_TYPE].append("The body is compressed.")
    if operation.parameters and not found[HTTPStatus.BAD_REQUEST]:
        found[HTTPStatus.BAD_REQUEST].append("A parameter is malformed.")
    if route.role is not None:
        found[HTTPStatus.UNAUTHORIZED].append(
            "Name and password, or the token, are missing or wrong."
        )
        found[HTTPStatus.FORBIDDEN].append(f"The role {route.role.name} is needed.")
        found[HTTPStatus.TOO_MANY_REQUESTS].append(
            "Too many requests, or wrong passwords; `Retry-After` says how long to wait."
        )
    if route.role is not None or operation.body is not None:
        found[HTTPStatus.INTERNAL_SERVER_ERROR].append(
            "An unexpected error, which the log has under the request's id, or damaged data."
        )
        if not found[HTTPStatus.SERVICE_UNAVAILABLE]:
            found[HTTPStatus.SERVICE_UNAVAILABLE].append("The store is away, or the server stops.")
    return {status: texts for status, texts in found.items() if texts}


def _status(error: type[PenstockError]) -> HTTPStatus:
    return status_of(error(""))


def _first_line(error: type[PenstockError]) -> str:
    return (error.__doc__ or "").strip().partition("\n")[0]
