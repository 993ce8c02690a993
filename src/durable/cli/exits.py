"""How a command ends: its exit code, and what it says of an error on standard error."""

from __future__ import annotations

import os
import sys
import threading
from typing import NoReturn

import msgspec

from durable.cli import causes
from durable.errors import (
    Conflict,
    DurableError,
    NeedsAttention,
    NotFound,
    RunCancelled,
    RunFailed,
    StoreError,
)
from durable.runtime.facts import CorruptFact

DONE = 0
FAILED = 1
USAGE = 2
NOT_FOUND = 3
CONFLICT = 4
STORE = 5
ATTENTION = 6
CANCELLED = 7
UNFINISHED = 8
INTERRUPTED = 130

OUTCOMES = {"completed": DONE, "failed": FAILED, "cancelled": CANCELLED}  # by what a run came to

PATIENCE = 10.0  # seconds that a command asks a store that does not answer

_CODES: dict[type[BaseException], int] = {
    RunFailed: FAILED,
    NotFound: NOT_FOUND,
    Conflict: CONFLICT,
    StoreError: STORE,
    NeedsAttention: ATTENTION,
    DurableError: USAGE,
}


class Interrupted(BaseException):
    """The user pressed Ctrl-C, or asked the process to end. `hint` says how to go on."""

    def __init__(self, message: str, hint: str, run: str) -> None:
        super().__init__(message)
        self.hint = hint
        self.run = run


class _Said(msgspec.Struct):
    """What is said of an error."""

    code: str
    message: str
    hint: str | None = None
    run: str | None = None


def report(error: BaseException, *, as_json: bool) -> int:
    """Say on standard error what happened; returns the exit code.

    Errors that are neither the user's nor the store's are raised again: they are bugs.
    """
    code, said = _described(error)
    if as_json:
        print(msgspec.json.encode({"error": said}).decode(), file=sys.stderr)
    else:
        head = "interrupted" if code == INTERRUPTED else "error"
        print(f"{head}: {said.message}", file=sys.stderr)
        if isinstance(error, RunFailed):
            for line in causes.lines(error.__cause__):
                print(line, file=sys.stderr)
        if said.hint:
            print(f"hint: {said.hint}", file=sys.stderr)
    return code


def code_of(error: DurableError) -> int:
    """The exit code of an error."""
    return next(code for kind, code in _CODES.items() if isinstance(error, kind))


def _described(error: BaseException) -> tuple[int, _Said]:
    match error:
        case DurableError():
            return code_of(error), _Said(error.code, error.message, error.hint, error.run)
        case RunCancelled():
            return CANCELLED, _Said("cancelled", str(error))
        case CorruptFact():
            return ATTENTION, _Said(NeedsAttention.code, str(error))
        case TimeoutError():
            return UNFINISHED, _Said("timeout", str(error))
        case Interrupted():
            return INTERRUPTED, _Said("interrupted", str(error), error.hint, error.run)
        case KeyboardInterrupt():
            return INTERRUPTED, _Said("interrupted", "stopped by Ctrl-C")
        case BaseExceptionGroup() if len(error.exceptions) == 1:
            return _described(error.exceptions[0])
    raise error


def reader_has_gone() -> int:
    """Whoever read our output (`| head`) has seen enough: nothing failed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return DONE


def leave_threads(code: int) -> None:
    """End the process now if threads of users' functions would keep it from ending."""
    others = [t for t in threading.enumerate() if t is not threading.main_thread()]
    if any(not thread.daemon for thread in others):
        leave_now(code)


def leave_now(code: int) -> NoReturn:
    """End the process, whatever still runs in it."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
