"""Settings of queues and subscriptions as options: one for each field of a config.

A setting that is added to a config becomes an option at once, with its help from the docstring.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
import types
import typing
from collections.abc import Callable
from typing import Any, Literal

import msgspec
import typer

from penstock.cli import exits

__all__ = ["with_settings"]

_PANEL = "Settings"
_BULLET = re.compile(r"^\s*- ((?:`\w+`(?:, )?)+): (.+?)(?=^\s*- |\Z)", re.MULTILINE | re.DOTALL)
_SENTENCE = re.compile(r"\S.*?\.(?=\s|\Z)", re.DOTALL)
_SHORT = 20
# The commas between pairs, not those inside a value.
_PAIRS = re.compile(r",(?=\w+=)")
_NOTHING = ("none", "null")


def with_settings(
    config: type[msgspec.Struct], *, without: tuple[str, ...] = (), is_new: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for each setting. It gets those that were given as ``settings``.

    ``is_new``: the command makes something, so the help says what holds if an option is absent.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        fields = [one for one in msgspec.structs.fields(config) if one.name not in without]
        abouts = _abouts(config)
        defaults = {one.name: _default(one.default) if is_new else "" for one in fields}
        kinds = {one.name: _kind(one.type) for one in fields}
        added = {
            name: inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=_option(name, kind, abouts.get(name, "") + defaults[name]),
            )
            for name, kind in kinds.items()
        }

        @functools.wraps(command)
        def run(*args: Any, **arguments: Any) -> None:
            given = {name: arguments.pop(name) for name in added}
            settings = {
                name: _value(name, kinds[name], value)
                for name, value in given.items()
                if value is not None
            }
            command(*args, settings=settings, **arguments)

        own = dict(inspect.signature(command, eval_str=False).parameters)
        del own["settings"]
        parameters = {**own, **added}
        run.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
        return run

    return decorate


def _abouts(config: type[msgspec.Struct]) -> dict[str, str]:
    """What the docstring says about each setting, in a sentence."""
    found = {}
    for names, text in _BULLET.findall(config.__doc__ or ""):
        first, *more = _SENTENCE.findall(" ".join(text.split()))
        if more and len(first) < _SHORT:
            first = f"{first} {more[0]}"
        for name in re.findall(r"\w+", names):
            found[name] = first
    return {name: f"{text[:1].upper()}{text[1:]}".replace("`", "") for name, text in found.items()}


def _default(value: object) -> str:
    """As one would give it, for settings that are one word."""
    if value is None:
        return " Default: none."
    if isinstance(value, bool):
        return f" Default: {'yes' if value else 'no'}."
    return f" Default: {value}." if isinstance(value, int | float | str) else ""


class _Kind(typing.NamedTuple):
    """What a setting takes. `choices` are those of a Literal, `fields` those of a struct."""

    form: str
    is_optional: bool
    choices: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()


def _kind(hint: Any) -> _Kind:
    members = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    is_optional = type(None) in members
    hint = next(one for one in members if one is not type(None))
    origin = typing.get_origin(hint)
    if hint is bool:
        return _Kind("flag", is_optional)
    if hint in (int, float):
        return _Kind("number", is_optional)
    if origin is Literal:
        return _Kind("choice", is_optional, choices=typing.get_args(hint))
    if origin in (tuple, list):
        return _Kind("names", is_optional)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _Kind("struct", is_optional, fields=hint.__struct_fields__)
    return _Kind("text", is_optional)


def _option(name: str, kind: _Kind, about: str) -> Any:
    flag = f"--{name.replace('_', '-')}"
    if kind.form == "flag":
        option = typer.Option(f"{flag}/--no-{flag[2:]}", help=about, rich_help_panel=_PANEL)
        return typing.Annotated[bool | None, option]
    metavar = {
        "number": "NUMBER",
        "choice": "|".join(kind.choices),
        "names": "NAME,...",
        "struct": "NAME=VALUE,...",
    }.get(kind.form, "TEXT")
    if kind.is_optional:
        metavar += "|none"
    if kind.fields:
        about += f" Names: {', '.join(kind.fields)}."
    option = typer.Option(flag, help=about, metavar=metavar, rich_help_panel=_PANEL)
    if kind.form == "names":
        return typing.Annotated[list[str] | None, option]
    return typing.Annotated[str | None, option]


def _value(name: str, kind: _Kind, given: str | bool | list[str]) -> object:
    """The value for the server. One that makes no sense ends the program."""
    flag = f"--{name.replace('_', '-')}"
    if isinstance(given, bool):
        return given
    if isinstance(given, list):
        # Separated by commas, or with the option repeated.
        return [one.strip() for text in given for one in text.split(",") if one.strip()]
    if kind.is_optional and given.lower() in _NOTHING:
        return None
    if kind.form == "number":
        return _number(flag, given, or_none=kind.is_optional)
    if kind.form == "choice" and given not in kind.choices:
        exits.usage(f"{flag} is {given!r}: use {', '.join(kind.choices)}")
    if kind.form == "struct":
        return _pairs(flag, kind, given)
    return given


def _number(flag: str, given: str, *, or_none: bool) -> int | float:
    try:
        value = float(given)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        exits.usage(f"{flag} is {given!r}: use a number{' or none' if or_none else ''}")
    return int(value) if value.is_integer() else value


def _pairs(flag: str, kind: _Kind, given: str) -> object:
    if given.startswith("{"):
        try:
            return msgspec.json.decode(given.encode())
        except msgspec.DecodeError as exc:
            exits.usage(f"{flag} is not JSON: {exc}")
    found = {}
    for pair in _PAIRS.split(given):
        name, equals, text = pair.partition("=")
        if not equals or name not in kind.fields:
            exits.usage(f"{flag} has {pair!r}: use name=value with {', '.join(kind.fields)}")
        try:
            # A number, true, false or null as JSON has them; else it is a text.
            found[name] = msgspec.json.decode(text.encode())
        except msgspec.DecodeError:
            found[name] = text
    return found
