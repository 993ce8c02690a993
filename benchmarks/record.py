"""Puts what a benchmark printed into docs/reference/benchmarks.md, with the date."""

from __future__ import annotations

import contextlib
import datetime as dt
import io
import sys
from collections.abc import Iterator
from pathlib import Path

NEWLINE = "\n"
PAGE = Path(__file__).parent.parent / "docs" / "reference" / "benchmarks.md"
HEAD = """# Benchmarks

What they printed last, each with its date and machine. [`nox -s bench -- NAME
--record`](../how-to/run-the-benchmarks.md) writes its part of this page.
"""


class _Tee(io.StringIO):
    """Also shows what it keeps."""

    def write(self, text: str) -> int:
        sys.__stdout__.write(text)  # type: ignore[union-attr]  # there is one in a command
        return super().write(text)


@contextlib.contextmanager
def recorded(command: str, page: Path = PAGE) -> Iterator[None]:
    """What is printed inside becomes the section of that command, in place of an earlier one."""
    printed = _Tee()
    with contextlib.redirect_stdout(printed):
        yield
    sections = _sections(page.read_text(encoding="utf-8")) if page.exists() else {}
    today = dt.datetime.now(tz=dt.UTC).date()
    sections[command] = f"On {today}:\n\n```text\n{printed.getvalue().strip(NEWLINE)}\n```\n"
    body = "".join(f"\n## {name}\n\n{text}" for name, text in sorted(sections.items()))
    page.write_text(HEAD + body, encoding="utf-8")


def _sections(page: str) -> dict[str, str]:
    _, *parts = page.split("\n## ")
    split = (part.split("\n\n", 1) for part in parts)
    return {name: text.rstrip("\n") + "\n" for name, text in split}
