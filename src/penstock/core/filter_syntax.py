"""The syntax tree of a filter, as CEL's own parser and type checker made it.

The only form in which CEL exports a checked expression is a `cel.expr.CheckedExpr` in protobuf's
wire format. Reading that tree rather than the text means that strings, comments and operator
precedence cannot be misread. Only what the limits need is kept: names, literal strings, calls and
loops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Build", "Call", "Field", "Literal", "Loop", "Name", "Node", "parse"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal:
    """A constant. `text` is None unless it is a string."""

    text: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """A variable, a loop's variable or a type. A leading dot means that no loop shadows it."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """`operand.field`, or `has(operand.field)`."""

    operand: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """An operator, function or method. A method's receiver is its first argument."""

    function: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """A list, map or message that the expression constructs."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """What a macro such as `exists` expands to: a fold of `body` over `over`."""

    variables: frozenset[str]
    accumulator: str
    over: Node
    start: Node
    body: tuple[Node, ...]


Node = Literal | Name | Field | Call | Build | Loop

# The field numbers of cel/expr/checked.proto and cel/expr/syntax.proto.
_ANY_VALUE = 2
_CHECKED_EXPRESSION = 4
_CONSTANT_STRING = 6
_NAME = 1
_OPERAND = 1
_TARGET, _FUNCTION, _ARGUMENTS = 1, 2, 3
_ELEMENTS = 1
_ENTRIES, _KEY, _VALUE = 2, 3, 4
_VARIABLE, _OVER, _ACCUMULATOR, _START, _CONDITION, _STEP, _RESULT, _SECOND_VARIABLE = range(1, 9)

_Fields = Mapping[int, Sequence[bytes]]


def parse(serialized: bytes) -> Node:
    """The tree of an expression that CEL serialized; raises `ValueError` for anything else."""
    try:
        checked = _fields(serialized)[_ANY_VALUE][0]
        return _node(_fields(checked)[_CHECKED_EXPRESSION][0])
    except (IndexError, KeyError) as exc:
        raise ValueError("not a checked CEL expression") from exc


def _node(data: bytes) -> Node:
    fields = _fields(data)
    for kind, read in _READERS.items():
        if kind in fields:
            return read(_fields(fields[kind][0]))
    raise ValueError("a kind of CEL expression that is not known here")


def _literal(fields: _Fields) -> Node:
    text = fields.get(_CONSTANT_STRING)
    return Literal(text=text[0].decode() if text else None)


def _name(fields: _Fields) -> Node:
    return Name(name=fields[_NAME][0].decode())


def _field(fields: _Fields) -> Node:
    return Field(operand=_node(fields[_OPERAND][0]))


def _call(fields: _Fields) -> Node:
    arguments = (*fields.get(_TARGET, ()), *fields.get(_ARGUMENTS, ()))
    return Call(function=fields[_FUNCTION][0].decode(), arguments=tuple(map(_node, arguments)))


def _list(fields: _Fields) -> Node:
    return Build(parts=tuple(map(_node, fields.get(_ELEMENTS, ()))))


def _map(fields: _Fields) -> Node:
    entries = [_fields(entry) for entry in fields.get(_ENTRIES, ())]
    # In a message, an entry has a field name instead of a key.
    parts = [part for entry in entries for part in (*entry.get(_KEY, ()), *entry[_VALUE])]
    return Build(parts=tuple(map(_node, parts)))


def _loop(fields: _Fields) -> Node:
    variables = (*fields[_VARIABLE], *fields.get(_SECOND_VARIABLE, ()))
    return Loop(
        variables=frozenset(name.decode() for name in variables),
        accumulator=fields[_ACCUMULATOR][0].decode(),
        over=_node(fields[_OVER][0]),
        start=_node(fields[_START][0]),
        body=tuple(_node(fields[part][0]) for part in (_CONDITION, _STEP, _RESULT)),
    )


_READERS: Mapping[int, Callable[[_Fields], Node]] = {
    3: _literal,
    4: _name,
    5: _field,
    6: _call,
    7: _list,
    8: _map,
    9: _loop,
}


def _fields(data: bytes) -> _Fields:
    """The strings and submessages of a protobuf message, by field number. Numbers are skipped."""
    fields: dict[int, list[bytes]] = {}
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        match tag & 7:
            case 0:
                _, position = _varint(data, position)
            case 1:
                position += 8
            case 2:
                length, position = _varint(data, position)
                fields.setdefault(tag >> 3, []).append(data[position : position + length])
                position += length
            case 5:
                position += 4
            case wire_type:
                raise ValueError(f"protobuf has no wire type {wire_type} here")
    return fields


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """The number at `position`, and the position after it."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
