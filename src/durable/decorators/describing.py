"""What a decorator finds out about a function, and refuses, before anything runs."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any

from durable.errors import InvalidDefinition, UsageError
from durable.protocol import durations, values
from durable.protocol.names import check_id
from durable.protocol.retries import Duration


def describe(fn: Callable[..., Any], name: str | None, what: str) -> dict[str, Any]:
    """The fields that all definitions have.

    Args:
        fn: what was decorated.
        name: given instead of its own; None: none was.
        what: `step` or `workflow`.

    Raises:
        InvalidDefinition: the function cannot be one.
    """
    if not hasattr(fn, "__code__"):
        raise InvalidDefinition(f"@{what} takes a function, not {type(fn).__name__}")
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise InvalidDefinition(
            f"{fn.__qualname__} is a generator function, which cannot be a {what}: "
            "its progress between two yields cannot be recorded",
            hint="return a list, or make each item a step of its own",
        )
    if name is None:
        name = fn.__qualname__
        if "<lambda>" in name or "<locals>" in name:
            raise InvalidDefinition(
                f"{name} has no name that stays the same",
                hint=f'give it one: @{what}(name="...")',
            )
    check_id(name, what=f"name of a {what}")
    hints = _hints(fn)
    signature = inspect.signature(fn, eval_str=True)
    for parameter, annotation in hints.items():
        # The arguments of a step are not stored: a client or a session is a fine argument.
        if what == "workflow" or parameter == "return":
            values.check_annotation(annotation, f"{parameter!r} of {what} {name}")
    return {
        "name": name,
        "fn": fn,
        "signature": signature,
        "hints": hints,
        "is_async": inspect.iscoroutinefunction(fn),
    }


def _hints(fn: Callable[..., Any]) -> dict[str, object]:
    try:
        return typing.get_type_hints(fn, include_extras=True)
    except NameError as e:
        raise InvalidDefinition(
            f"an annotation of {fn.__qualname__} does not resolve: {e}",
            hint="import the name at run time, not only under TYPE_CHECKING",
        ) from e


def limit(timeout: Duration | None, option: str = "timeout") -> float | None:
    """A limit of time, in seconds; None: there is none.

    Raises:
        UsageError: it is no length of time, or zero.
    """
    return None if timeout is None else length(timeout, option)


def length(timeout: Duration, option: str) -> float:
    """As `limit`, where there must be one."""
    try:
        seconds = durations.seconds(timeout)
    except UsageError as e:
        raise UsageError(f"{option}={timeout!r}: {e.message}", hint=e.hint) from None
    if seconds == 0:
        raise UsageError(
            f"{option}={timeout!r}: nothing ends in no time", hint="give it some, such as 1s"
        )
    return seconds
