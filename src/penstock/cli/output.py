"""What commands print: tables for people, JSON for programs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from penstock.client import Message

__all__ = [
    "add_row",
    "age",
    "console",
    "moment",
    "number",
    "plain",
    "preview",
    "print_json",
    "print_lines",
    "print_messages",
    "print_pairs",
    "setting",
    "show",
    "size",
    "table",
    "terminal_width",
    "write",
]

# Without a terminal to fit into, nothing is wrapped or cut.
_WIDE = 100_000
_PREVIEW_CHARACTERS = 60
# A terminal with this many columns has room for everything about a message in one line.
_ROOMY = 110
# One with fewer than these has room for the essentials only.
_NARROW = 60
# A column that gives way keeps at least this width.
_LEAST_COLUMNS = 8
_encoder = msgspec.json.Encoder()


def console() -> Console:
    """A console, for what is printed piece by piece."""
    from rich.console import Console

    out = Console()
    return out if out.is_terminal else Console(width=_WIDE)


def terminal_width() -> int:
    return console().width


def show(what: Table | str) -> None:
    """Print for people. Without a terminal, nothing is wrapped, cut or padded."""
    from rich.console import Console

    out = Console(highlight=False)
    if out.is_terminal:
        out.print(what)
        return
    out = Console(highlight=False, width=_WIDE)
    with out.capture() as captured:
        out.print(what)
    lines = captured.get().splitlines()
    write("".join(f"{line.rstrip()}\n" for line in lines).encode())


def add_row(shown: Table, *cells: str, style: str = "") -> None:
    """Add a row of one line, taken literally: brackets are not mark-up."""
    from rich.text import Text

    texts = [Text(cell, no_wrap=True, overflow="ellipsis") for cell in cells]
    shown.add_row(*texts, style=style)


def table(*columns: str, right: Sequence[str] = (), cut: Sequence[str] = ()) -> Table:
    """Columns in ``right`` are aligned to the right; those in ``cut`` give way for lack of room."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in columns:
        justify: Any = "right" if name in right else "left"
        gives_way = name in cut
        made.add_column(
            name,
            justify=justify,
            overflow="ellipsis",
            no_wrap=not gives_way,
            min_width=_LEAST_COLUMNS if gives_way else None,
        )
    return made


def write(data: bytes) -> None:
    """Write and flush: what follows may take long, or may rely on this having been shown."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def print_json(value: object) -> None:
    write(_encoder.encode(value) + b"\n")


def print_lines(values: Iterable[object]) -> None:
    """NDJSON: one value a line."""
    write(_encoder.encode_lines(values))


def print_messages(messages: Sequence[Message], *, with_receipts: bool = False) -> None:
    """A table for people, with one line for each message."""
    width = terminal_width()
    is_topical = any(message.topic for message in messages)
    # For lack of room, what matters least is left out: a receipt is useless if it is cut.
    columns: dict[str, Callable[[Any], str]] = {
        "index": lambda one: str(one.index),
        "id": lambda one: one.id,
        "created": lambda one: moment(one.created_at),
        "topic": lambda one: plain(one.topic or ""),
        "size": lambda one: size(len(one.body)),
        "receipt": lambda one: one.receipt,
        "delivery": lambda one: str(one.deliveries),
        "body": lambda one: preview(one.body),
    }
    left_out = {"receipt", "delivery"} if not with_receipts else set()
    if not is_topical:
        left_out.add("topic")
    if width < _ROOMY:
        left_out.add("id" if with_receipts else "created")
    if width < _NARROW:
        left_out |= {"id", "created", "size"}
    names = [name for name in columns if name not in left_out]
    shown = table(*names, right=("index", "size", "delivery"), cut=("topic", "body"))
    for message in messages:
        add_row(shown, *(columns[name](message) for name in names))
    show(shown)


def print_pairs(pairs: Iterable[tuple[str, str]]) -> None:
    """Names and values, one below the other."""
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    for name, value in pairs:
        shown.add_row(Text(name, "bold"), Text(value))
    show(shown)


def preview(body: bytes, characters: int = _PREVIEW_CHARACTERS) -> str:
    """The beginning of a body, in one line."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return f"({size(len(body))} of no text)"
    shown = plain(text[: characters + 1])
    if len(shown) > characters:
        return shown[: characters - 1] + "…"
    return shown


def plain(text: str) -> str:
    """In one line, and harmless: what a sender wrote must not control the reader's terminal."""
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )


def setting(value: object) -> str:
    """A setting's value, as its option takes it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.asdict(value).items()
        return ",".join(f"{name}={setting(one)}" for name, one in fields)
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else plain(str(value))


def number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def size(count: int) -> str:
    """A number of bytes, for people."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def age(seconds: float | None) -> str:
    if seconds is None:
        return ""
    for count, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * count:
            return f"{seconds / count:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def moment(time: datetime | None) -> str:
    return "" if time is None else f"{time:%Y-%m-%d %H:%M:%S}"
