"""What an error consists of and where it comes from, for people."""

from __future__ import annotations

from collections.abc import Iterator

INDENT = "  "
LINES_MAX = 20  # of a tree that may be large


def lines(error: BaseException | None) -> list[str]:
    """The members of a group and the causes below an error, one indented line each."""
    if error is None:
        return []
    found = list(_below(error, INDENT))
    if len(found) > LINES_MAX:
        found[LINES_MAX:] = [f"{INDENT}and {len(found) - LINES_MAX} more"]
    return found


def _below(error: BaseException, indent: str) -> Iterator[str]:
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield f"{indent}{_said(member)}"
            yield from _below(member, indent + INDENT)
    cause = error.__cause__
    if cause is None and not error.__suppress_context__:
        cause = error.__context__
    if cause is not None:
        yield f"{indent}caused by {_said(cause)}"
        yield from _below(cause, indent + INDENT)


def _said(error: BaseException) -> str:
    message = " ".join(str(error).split())
    kind = type(error).__qualname__
    return f"{kind}: {message}" if message else kind
