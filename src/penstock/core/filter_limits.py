"""Limits on filters, so that none can hold up the queue.

CEL always terminates, but not always soon: a loop may visit 10,000 elements and scan a megabyte for
each. These rules are checked when a filter is declared. They bound the cost of an evaluation by the
filter's length times the message's size:

- it names the message's variables at most 64 times;
- a loop (`all`, `exists`, `exists_one`) runs over a part of the message, and its body sees nothing
  of the message but the element, `priority` and `id`. So each part is visited once;
- it builds no lists (`map`, `filter`): CEL copies the list for each element it adds;
- what `contains` and `matches` look for is a literal;
- its regular expressions are short even with their repetitions written out, have no Unicode
  classes, and are not used in loops: each use compiles them anew.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from penstock.core.filter_syntax import Build, Call, Field, Literal, Loop, Name, Node
from penstock.errors import InvalidFilter

__all__ = ["VARIABLES", "Usage", "check_limits"]

VARIABLES = frozenset({"attributes", "body", "id", "priority", "topic"})

MAX_REFERENCES = 64
MAX_PATTERN_CHARACTERS = 512

# Variables that are always small.
_ALLOWED_IN_LOOPS = frozenset({"id", "priority"})

_PATTERN_TOKEN = re.compile(
    r"""
      \\.
    | \[ \^? \]? (?: \[:\^?\w+:\] | \\. | [^\]\\] )* \]
    | \{ (?P<least>\d+) (?: , (?P<most>\d*) )? \}
    | .
    """,
    re.VERBOSE | re.DOTALL,
)
_UNICODE_CLASS = re.compile(r"(?<!\\)(?:\\\\)*\\[pP]")


@dataclass(slots=True)
class Usage:
    """What a filter looks at."""

    variables: set[str] = field(default_factory=set)
    patterns: list[str] = field(default_factory=list)
    references: int = 0


@dataclass(frozen=True, slots=True)
class _Scope:
    """The variables of the loops around an expression: of the innermost loop, and of the others."""

    inner: frozenset[str] = frozenset()
    outer: frozenset[str] = frozenset()

    def enter(self, loop: Loop) -> _Scope:
        return _Scope(loop.variables | {loop.accumulator}, self.inner | self.outer)


def check_limits(tree: Node) -> Usage:
    """Returns what the filter uses. Raises `InvalidFilter`, which names the rule that it breaks."""
    usage = Usage()
    _check(tree, _Scope(), usage)
    if usage.references > MAX_REFERENCES:
        raise InvalidFilter(
            f"the filter names variables {usage.references} times, and may {MAX_REFERENCES} times: "
            "compare with several values at once, as in topic in ['a', 'b']"
        )
    length = sum(map(_written_out, usage.patterns))
    if length > MAX_PATTERN_CHARACTERS:
        raise InvalidFilter(
            f"the filter's regular expressions have {length} characters with their repetitions "
            f"written out, and may have {MAX_PATTERN_CHARACTERS}: shorten them"
        )
    return usage


def _check(node: Node, scope: _Scope, usage: Usage) -> None:
    match node:
        case Name():
            _check_name(node.name, scope, usage)
        case Field():
            _check(node.operand, scope, usage)
        case Call():
            _check_call(node, scope, usage)
        case Build():
            for part in node.parts:
                _check(part, scope, usage)
        case Loop():
            _check_loop(node, scope, usage)
        case Literal():
            pass


def _check_name(name: str, scope: _Scope, usage: Usage) -> None:
    if name in scope.inner:
        usage.references += not name.startswith("@")
        return
    variable = name.removeprefix(".")
    is_outer = name in scope.outer
    if variable in VARIABLES and not is_outer:
        usage.variables.add(variable)
        usage.references += 1
        is_outer = bool(scope.inner) and variable not in _ALLOWED_IN_LOOPS
    if is_outer:
        raise InvalidFilter(
            f"the filter uses {variable!r} inside a loop: in all, exists and exists_one use only "
            "the loop's own variable, priority and id"
        )


def _check_call(call: Call, scope: _Scope, usage: Usage) -> None:
    if call.function in ("contains", "matches"):
        sought = call.arguments[-1]
        if not isinstance(sought, Literal) or sought.text is None:
            raise InvalidFilter(
                f"the filter passes {call.function} a computed value: use a literal string"
            )
        if call.function == "matches":
            _check_pattern(sought.text, scope)
            usage.patterns.append(sought.text)
    for argument in call.arguments:
        _check(argument, scope, usage)


def _check_pattern(pattern: str, scope: _Scope) -> None:
    if scope.inner:
        raise InvalidFilter(
            "the filter uses matches inside a loop: use startsWith, endsWith, contains or == there"
        )
    if _UNICODE_CLASS.search(pattern):
        raise InvalidFilter(
            f"the filter's regular expression {pattern!r} uses a Unicode class: list the "
            r"characters instead of \p"
        )


def _check_loop(loop: Loop, scope: _Scope, usage: Usage) -> None:
    if isinstance(loop.start, Build):
        raise InvalidFilter("the filter uses map or filter: ask with all, exists or exists_one")
    if not _is_path(loop.over):
        raise InvalidFilter(
            "the filter loops over a computed value: loop over a part of the message, as in "
            "body.items.exists(item, item.price > 100)"
        )
    _check(loop.over, scope, usage)
    for part in loop.body:
        _check(part, scope.enter(loop), usage)


def _is_path(node: Node) -> bool:
    """Whether it is a variable, or a path of fields and literal keys into one."""
    match node:
        case Name():
            return True
        case Field(operand=operand):
            return _is_path(operand)
        case Call(function="_[_]", arguments=(operand, Literal())):
            return _is_path(operand)
    return False


def _written_out(pattern: str) -> int:
    """How long a regular expression would be without counted repetitions such as `{3}`."""
    lengths = [0]  # of each open group, outermost first
    last = 0  # of what a repetition would repeat
    for token in _PATTERN_TOKEN.finditer(pattern):
        if token["least"]:
            count = max(int(token["least"]), int(token["most"] or 0))
            lengths[-1] += last * max(count - 1, 0)
            last *= max(count, 1)
        elif token[0] == "(":
            lengths.append(1)
        elif token[0] == ")" and len(lengths) > 1:
            last = lengths.pop() + 1
            lengths[-1] += last
        else:
            last = len(token[0])
            lengths[-1] += last
    return sum(lengths)
