"""What commands print: one JSON document, or text for people.

`rich` is imported only where a terminal is there to draw on.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TextIO

import msgspec

from durable.protocol import values

CELL_MAX = 60  # characters of a value in a table
_GAP = "  "


_stdout: ContextVar[TextIO | None] = ContextVar("durable.cli.stdout", default=None)


@contextlib.contextmanager
def alone(*, as_json: bool) -> Iterator[None]:
    """With --json standard output is one document: what users' code prints goes to stderr."""
    if not as_json:
        yield
        return
    token = _stdout.set(sys.stdout)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        _stdout.reset(token)


def stream() -> TextIO:
    """Standard output, also where `alone` keeps it from others."""
    return _stdout.get() or sys.stdout


def whole_lines() -> None:
    """Each line of this process goes out at once and in one write, whatever PYTHONUNBUFFERED says.

    Workers share streams: the processes of a fleet, and what logs to one place. Unbuffered, `print`
    writes a line and its end apart, and lines of two processes run into each other; buffered, what
    was printed before a kill is lost.
    """
    for shared in (stream(), sys.stderr):
        if isinstance(shared, io.TextIOWrapper):  # else somebody collects it in this process
            shared.reconfigure(line_buffering=True, write_through=False)


def document(value: object) -> None:
    """The one JSON document of a command."""
    print(msgspec.json.encode(value).decode(), file=stream(), flush=True)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Aligned text; drawn where standard output is a terminal."""
    if sys.stdout.isatty():
        _drawn(heads, rows)
        return
    lines = [[head.upper() for head in heads], *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(heads))]
    for line in lines:
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print(_GAP.join(padded).rstrip())


def fields(pairs: Sequence[tuple[str, str]]) -> None:
    """Names and values, one pair a line; pairs without a value are left out."""
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        if value:
            print(f"{name.ljust(width)}{_GAP}{value}")


def notes(said: Sequence[tuple[str, str]]) -> None:
    """What people have said of calls, below the table of them."""
    for path, note in said:
        print(f"{path}: {note}")


def _drawn(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for head in heads:
        drawn.add_column(head)
    for row in rows:
        drawn.add_row(*(Text(cell) for cell in row))  # Text: ids may look like markup
    Console().print(drawn)


def short(value: object) -> str:
    """A value as it stands in a table: one line, cut."""
    return cut(readable(value))


def cut(text: str) -> str:
    """Text as it stands in a table: one line, cut."""
    text = " ".join(text.split())
    return text if len(text) <= CELL_MAX else f"{text[: CELL_MAX - 3]}..."


def readable(value: object) -> str:
    """A value as JSON; what JSON has no form for is tagged, as it is stored."""
    return values.encode(value).decode()


def raw(value: object) -> msgspec.Raw:
    """The same as a part of a document."""
    return msgspec.Raw(values.encode(value))


def moment(seconds: float | None) -> str:
    """A time for people: UTC, to the second."""
    if seconds is None:
        return ""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def lasting(seconds: float) -> str:
    """A length of time for people."""
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s"
