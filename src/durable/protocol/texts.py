"""Words for people that a record keeps: who did something, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from durable.errors import UsageError

BYTES_MAX: Final = 4_096


def check(text: str, what: str) -> str:
    """The same text, if a record can keep it; of a subclass (an enum) the plain text.

    Args:
        what: it is, for the error.

    Raises:
        UsageError: it is no text, not valid Unicode, or longer than 4 KiB.
    """
    given: object = text  # callers may not be type-checked
    if not isinstance(given, str):
        raise UsageError(f"{what} must be text, not {type(given).__name__}")
    try:
        size = len(given.encode())
    except UnicodeEncodeError as e:
        raise UsageError(f"{what} {given!r:.60} is not valid Unicode") from e
    if size > BYTES_MAX:
        raise UsageError(f"{what} takes {size} bytes; at most {BYTES_MAX} are kept")
    return str.__str__(given)


def check_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """The same tags, if a record can keep them.

    Raises:
        UsageError: they are no dict of texts.
    """
    given: object = tags  # callers may not be type-checked
    if not isinstance(given, Mapping):
        raise UsageError(f"tags must be a dict, not {type(given).__name__}")
    return {check(name, "a tag"): check(value, "a tag") for name, value in given.items()}
