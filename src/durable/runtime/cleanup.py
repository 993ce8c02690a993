"""Whether code is cleaning up: what a cancelled run may still do.

Once a run is cancelled each of its durable calls raises `RunCancelled`, but for those made while
a cancellation is being handled: in an `except` or `finally` block, or at the exit of a context
manager. Python itself knows what is being handled, so the answer depends on the code alone, and
replay gives the same one. Code that swallows the cancellation and goes on is cancelled again.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from contextvars import ContextVar

from durable.errors import RunCancelled
from durable.runtime.turns import is_cancellation

_inherited: ContextVar[bool] = ContextVar("durable.cleanup", default=False)
_outside: ContextVar[BaseException | None] = ContextVar("durable.outside", default=None)


def begin() -> None:
    """Before the function: what is being handled around the event loop is not its business."""
    _outside.set(sys.exception())


def under_way() -> bool:
    """Whether a cancellation is being handled where this is called."""
    handled = sys.exception()
    return _inherited.get() or (handled is not None and comes_of_cancellation(handled))


@contextlib.contextmanager
def inherited(cleaning: bool) -> Iterator[None]:
    """For another task or thread: it works for code that is cleaning up, if `cleaning`."""
    token = _inherited.set(cleaning or _inherited.get())
    try:
        yield
    finally:
        _inherited.reset(token)


def holds_only_cancellations(error: BaseException) -> bool:
    """Whether it is `RunCancelled`, or a group of nothing else."""
    if isinstance(error, BaseExceptionGroup):
        return all(holds_only_cancellations(member) for member in error.exceptions)
    return isinstance(error, RunCancelled)


def comes_of_cancellation(error: BaseException) -> bool:
    """Whether it is a cancellation, or was raised while `RunCancelled` was being handled."""
    outside = _outside.get()
    if error is not outside and is_cancellation(error):
        return True
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and link is not outside and id(link) not in seen:
        if _holds_cancellation(link):
            return True
        seen.add(id(link))
        link = link.__context__
    return False


def _holds_cancellation(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_holds_cancellation(member) for member in error.exceptions)
    return isinstance(error, RunCancelled)
