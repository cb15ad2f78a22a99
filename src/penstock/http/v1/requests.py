"""Reading a request: values from its path and query, and a body in one of the JSON forms.

Whatever is wrong raises `InvalidArgument`, with a sentence that names the field.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TypeVar, cast

import msgspec

from penstock.core.limits import MAX_BODY_BYTES
from penstock.errors import InvalidArgument
from penstock.http.body import read_body
from penstock.http.exchange import IncomingRequest
from penstock.http.v1.fields import MAX_NUMBER

__all__ = [
    "decode",
    "path_names",
    "path_value",
    "query_flag",
    "query_number",
    "read_form",
    "start_of",
    "time_of",
]

Form = TypeVar("Form")

# Enough for the longest list of targets that a form may have.
_FORM_BYTES = MAX_BODY_BYTES
_WHERE = re.compile(r"(.*) - at `(?:key in )?\$\.?(.*)`\Z", re.DOTALL)


def path_value(request: IncomingRequest, name: str) -> str:
    return cast(str, request.route_values[name])


def path_names(request: IncomingRequest) -> tuple[str, str]:
    """The names of the queue and the subscription that the request is about."""
    return path_value(request, "queue"), path_value(request, "subscription")


def query_number(request: IncomingRequest, name: str, default: int, *, low: int, high: int) -> int:
    text = request.parameter(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 16 and low <= int(text) <= high):
        raise InvalidArgument(f"{name} is {text[:40]!r}: use a number from {low} to {high}")
    return int(text)


def query_flag(request: IncomingRequest, name: str, *, default: bool) -> bool:
    text = request.parameter(name)
    if text is None:
        return default
    if text not in ("true", "false"):
        raise InvalidArgument(f"{name} is {text[:40]!r}: use true or false")
    return text == "true"


async def read_form(request: IncomingRequest, decoder: msgspec.json.Decoder[Form]) -> Form:
    """An empty body is an empty form. Raises `BatchTooLarge` as well."""
    body = await read_body(request, _FORM_BYTES)
    return decode(decoder, body or b"{}")


def decode(decoder: msgspec.json.Decoder[Form], text: bytes, what: str = "the body") -> Form:
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as exc:
        raise InvalidArgument(_sentence(str(exc), what)) from None
    except UnicodeDecodeError:
        raise InvalidArgument(f"{what} is not UTF-8") from None
    except msgspec.DecodeError as exc:
        raise InvalidArgument(f"{what} is not JSON: {exc}") from None
    except RecursionError:
        raise InvalidArgument(f"{what} is nested too deeply") from None


def _sentence(problem: str, what: str) -> str:
    """msgspec's message in our words: the field comes first."""
    found = _WHERE.match(problem)
    where, problem = (found[2] or what, found[1]) if found else (what, problem)
    return f"{where} is not as it should be: {problem[:1].lower()}{problem[1:]}"


def start_of(value: int | str) -> int | str | datetime:
    """A position: earliest, latest, an index or a time."""
    if isinstance(value, int):
        if not 0 <= value <= MAX_NUMBER:
            raise InvalidArgument(f"start is {value}: use an index from 0 to {MAX_NUMBER}")
        return value
    if value in ("earliest", "latest"):
        return value
    try:
        return time_of("start", value)
    except InvalidArgument:
        raise InvalidArgument(
            f"start is {value[:40]!r}: use earliest, latest, an index, or a time such as "
            "2030-01-31T12:00:00Z"
        ) from None


def time_of(name: str, text: str) -> datetime:
    """A time with a zone, as ISO 8601 writes it."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InvalidArgument(
            f"{name} is {text[:40]!r}: use a time with its zone, such as 2030-01-31T12:00:00Z"
        )
    return moment
