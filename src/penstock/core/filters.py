"""Filters: which messages a subscription wants, as a CEL expression over the message.

An expression sees `body` (parsed JSON, or null when the body is not JSON), `attributes`, `topic`
("" when there is none), `priority` and `id`. It is checked when it is declared: syntax, types, and
the limits of `penstock.core.filter_limits`.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import msgspec
from cel_expr_python import cel

from penstock.core.filter_limits import check_limits
from penstock.core.filter_syntax import Call, Literal, Name, Node, parse
from penstock.core.filter_test import FilterTest
from penstock.core.message import Message
from penstock.errors import InvalidFilter

__all__ = ["Filter", "Match", "Subject", "compile_filter", "try_filter"]

MAX_SOURCE_CHARACTERS = 4096
# Deeper JSON is an error to every filter that looks into it. How deep the parser gets depends on
# the stack it is called on, and a filter must give the same verdict every time.
MAX_BODY_DEPTH = 100
# The worst regular expressions within the limits take several microseconds a byte.
MAX_BODY_BYTES_WITH_PATTERNS = 64 * 1024

_ENVIRONMENT = cel.NewEnv(
    variables={
        "attributes": cel.Type.Map(cel.Type.STRING, cel.Type.STRING),
        "body": cel.Type.DYN,
        "id": cel.Type.STRING,
        "priority": cel.Type.INT,
        "topic": cel.Type.STRING,
    }
)
# CEL's checker does not compile patterns, so each one is tried before a filter is accepted.
_PATTERN_TEST = _ENVIRONMENT.compile("id.matches(topic)")

_STATUS = re.compile(r"^[A-Z_]+: | \[[A-Z_]+\]$")
_POSITION = re.compile(r"ERROR: <input>:(\d+):(\d+): ")
# The error for an expression that is nested too deeply has no position.
_NO_POSITION = re.compile(r"ERROR: <input>:-1:-1: ")

_decode_json = msgspec.json.Decoder().decode
_UNREADABLE = object()


class Match(enum.Enum):
    """A filter's verdict. An `ERROR` is not a match, and is counted."""

    YES = enum.auto()
    NO = enum.auto()
    ERROR = enum.auto()


class Subject:
    """A message as filters see it. One is made per message, however many filters there are.

    The body is parsed and the id is made at most once, when a filter first looks at them.
    """

    __slots__ = ("_activation", "_attributes", "_body", "_id", "_priority", "_read", "topic")

    def __init__(
        self,
        *,
        body: bytes,
        attributes: Mapping[str, str],
        topic: str | None,
        priority: int,
        id: str | Callable[[], str],
    ) -> None:
        self.topic = topic or ""
        self._body = body
        self._attributes = attributes
        self._priority = priority
        self._id = id
        self._read: dict[str, object] = {}
        self._activation: Any = None

    @property
    def body_bytes(self) -> int:
        return len(self._body)

    def activation(self, variables: frozenset[str]) -> Any:
        """At least these variables, in CEL's own form.

        A variable that CEL cannot represent is left out, which CEL treats as an error wherever the
        expression needs it.
        """
        if not variables <= self._read.keys():
            for name in variables - self._read.keys():
                self._read[name] = self._value(name)
            readable = {
                name: value for name, value in self._read.items() if value is not _UNREADABLE
            }
            # It caches what it has converted, so the next filter does not pay for that again.
            self._activation = _ENVIRONMENT.Activation(readable)
        return self._activation

    def _value(self, name: str) -> object:
        match name:
            case "attributes":
                attributes = self._attributes
                text = "".join((*attributes, *attributes.values()))
                return dict(attributes) if _is_readable(text) else _UNREADABLE
            case "body":
                return _parse_body(self._body)
            case "id":
                return self._id if isinstance(self._id, str) else self._id()
            case "priority":
                return self._priority
            case _:
                return self.topic if _is_readable(self.topic) else _UNREADABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A compiled filter. Made by `compile_filter`; equal to any other with the same source.

    - `topic`: if set, no message of another topic can match.
    - `is_topic_only`: the topic alone decides.
    - `variables`: what the filter looks at.
    """

    source: str
    topic: str | None = field(compare=False)
    is_topic_only: bool = field(compare=False)
    variables: frozenset[str] = field(compare=False)
    _max_body_bytes: int | None = field(compare=False, repr=False)
    _program: Any = field(compare=False, repr=False)

    def matches(self, subject: Subject) -> Match:
        """Whether the filter wants the message. Never raises.

        A missing key, a wrong type, or a part of the message that CEL cannot represent (an integer
        beyond 64 bits, a NUL character, JSON more than 100 levels deep) is an `ERROR`, unless the
        rest of the expression decides without it.
        """
        if self.topic is not None and self.topic != subject.topic:
            return Match.NO
        if self.is_topic_only:
            return Match.YES
        if self._max_body_bytes is not None and subject.body_bytes > self._max_body_bytes:
            return Match.ERROR
        try:
            verdict = self._program.eval(subject.activation(self.variables)).value()
        except RuntimeError:
            # Other errors are returned; a loop of more than 10,000 steps is raised.
            return Match.ERROR
        if verdict is True:
            return Match.YES
        return Match.NO if verdict is False else Match.ERROR


def compile_filter(source: str) -> Filter:
    """Compile a CEL expression.

    Raises `InvalidFilter`, with CEL's own message and the position, if it is empty, longer than
    4096 characters, not valid CEL, not a boolean, or beyond the limits.
    """
    if not source.strip():
        raise InvalidFilter("the filter is empty: leave it out to get every message")
    if len(source) > MAX_SOURCE_CHARACTERS:
        raise InvalidFilter(
            f"the filter has {len(source)} characters, and may have {MAX_SOURCE_CHARACTERS}: "
            "shorten it"
        )
    program = _compile(source)
    tree = parse(program.serialize())
    usage = check_limits(tree)
    for pattern in usage.patterns:
        _check_pattern(pattern)
    topics = [topic for node in _conjuncts(tree) if (topic := _wanted_topic(node)) is not None]
    has_patterns_in_body = bool(usage.patterns) and "body" in usage.variables
    return Filter(
        source=source,
        topic=topics[0] if topics else None,
        is_topic_only=_wanted_topic(tree) is not None,
        variables=frozenset(usage.variables),
        _max_body_bytes=MAX_BODY_BYTES_WITH_PATTERNS if has_patterns_in_body else None,
        _program=program,
    )


def _compile(source: str) -> Any:
    try:
        program = _ENVIRONMENT.compile(source)
    except (RuntimeError, TypeError) as exc:
        # A TypeError means half a surrogate pair, which has no UTF-8 form.
        raise InvalidFilter(f"the filter is not valid CEL: {_explain(exc)}") from exc
    kind = program.return_type()
    if kind not in (cel.Type.BOOL, cel.Type.DYN):
        raise InvalidFilter(
            f"the filter yields {kind.name().lower()}, not true or false: compare it with something"
        )
    return program


def _explain(exc: RuntimeError | TypeError) -> str:
    """CEL's message with its line and column, without the status codes around it."""
    if isinstance(exc, TypeError):
        return "it holds half a surrogate pair; write the whole character"
    text = _STATUS.sub("", str(exc))
    return _NO_POSITION.sub("", _POSITION.sub(r"line \1, column \2: ", text)).strip()


def _check_pattern(pattern: str) -> None:
    verdict = _PATTERN_TEST.eval(data={"id": "", "topic": pattern}).value()
    if not isinstance(verdict, bool):
        raise InvalidFilter(
            f"the filter's regular expression {pattern!r} is not valid: {_STATUS.sub('', verdict)}"
        )


def _conjuncts(tree: Node) -> Iterator[Node]:
    """The expressions that are joined by `&&`: all must be true for the whole to be true."""
    if isinstance(tree, Call) and tree.function == "_&&_":
        for argument in tree.arguments:
            yield from _conjuncts(argument)
    else:
        yield tree


def _wanted_topic(node: Node) -> str | None:
    """The topic, if the expression just compares the topic with a literal."""
    match node:
        case Call(function="_==_", arguments=(Name(name="topic"), Literal(text=text))):
            return text
        case Call(function="_==_", arguments=(Literal(text=text), Name(name="topic"))):
            return text
    return None


def _parse_body(body: bytes) -> object:
    try:
        value = _decode_json(body)
    except (RecursionError, msgspec.ValidationError):
        # It is JSON, but too deep, or has a number that no double can hold.
        return _UNREADABLE
    except ValueError:
        return None
    may_be_deep = body.count(b"[") + body.count(b"{") > MAX_BODY_DEPTH
    if (may_be_deep or b"\\u0000" in body) and not _is_readable_json(value):
        return _UNREADABLE
    return value


def _is_readable_json(value: object) -> bool:
    pending = [(value, 1)]
    while pending:
        part, depth = pending.pop()
        if isinstance(part, str) and "\0" in part:
            return False
        if isinstance(part, dict | list):
            if depth > MAX_BODY_DEPTH:
                return False
            children = chain(part, part.values()) if isinstance(part, dict) else part
            pending.extend((child, depth + 1) for child in children)
    return True


def _is_readable(text: str) -> bool:
    """Whether CEL can represent the text: it cuts at a NUL, and rejects half surrogate pairs."""
    if "\0" in text:
        return False
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def try_filter(compiled: Filter, messages: Iterable[Message]) -> FilterTest:
    """Try a filter on existing messages."""
    tested = 0
    matched: list[int] = []
    failed: list[int] = []
    for message in messages:
        tested += 1
        envelope = message.envelope
        verdict = compiled.matches(
            Subject(
                body=message.body,
                attributes=envelope.attributes,
                topic=envelope.topic,
                priority=envelope.priority,
                id=message.id,
            )
        )
        if verdict is Match.YES:
            matched.append(message.index)
        elif verdict is Match.ERROR:
            failed.append(message.index)
    return FilterTest(tested=tested, matched=matched, failed=failed)
