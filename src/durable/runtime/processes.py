"""Bodies in child processes: what computes for long has a core of its own, and can be killed.

The pool is anyio's. It sends the arguments by pickle, to children that this process has started
itself; what comes back is JSON, and nothing of either is ever stored.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec

from durable.errors import InvalidArguments, InvalidDefinition, ProcessDied
from durable.protocol import failures
from durable.protocol.failures import Failure
from durable.runtime import child
from durable.runtime.calls import StepCall
from durable.runtime.child import Answer, Job
from durable.runtime.definitions import StepDefinition
from durable.runtime.scopes import Current
from durable.runtime.surroundings import Surroundings
from durable.runtime.threads import Unwinding
from durable.runtime.threadwatch import at_work
from durable.system import System, process_id

_decode = msgspec.json.Decoder(Answer).decode
_boot = System().boot


class Raised(Exception):
    """A body in a child raised.

    Attributes:
        failure: the error as the child saw it.
    """

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def told(error: BaseException) -> tuple[BaseException, Failure]:
    """What a body raised, here or in a child, and its record."""
    if isinstance(error, Raised):
        return failures.rebuild(error.failure), error.failure
    return error, failures.from_exception(error)


def check(fn: Callable[..., Any], name: str) -> None:
    """Whether a child process can find this function.

    Raises:
        InvalidDefinition: it cannot.
    """
    if "<locals>" in fn.__qualname__ or "<lambda>" in fn.__qualname__:
        raise InvalidDefinition(
            f"step {name!r} is to run in a child process, which cannot import {fn.__qualname__!r}",
            hint="define the function at the top level of a module",
        )
    if fn.__module__ == "__main__" and not Path(_file_of("__main__")).is_file():
        raise InvalidDefinition(
            f"step {name!r} is to run in a child process, which cannot import what was typed in",
            hint="put the function in a file",
        )


async def run(around: Surroundings, call: StepCall[Any], current: Current) -> msgspec.Raw:
    """The encoded value of a body that runs in a child; a cancellation kills the child.

    Raises:
        ProcessDied: the child ended before it answered.
        InvalidArguments: the arguments cannot be sent.
        Unwinding: the lease was lost before the body began.
        Raised: the body raised.
    """
    while True:
        if not around.trusted():
            raise Unwinding("the lease was lost before the body began")
        answer = await _ask(call, _job(call, current), current.attempt)
        if not answer.late:
            break  # else the child took so long to start that we look again whether we may
    if answer.failure is not None:
        raise Raised(answer.failure)
    assert isinstance(answer.value, msgspec.Raw)
    return answer.value


async def _ask(call: StepCall[Any], job: Job, attempt: int) -> Answer:
    from anyio import to_process  # imports subprocess and pickle, which few programs need

    # The caller has a place among the processes: the pool need not count them again.
    limiter = anyio.CapacityLimiter(1)
    try:
        with at_work():
            data = await to_process.run_sync(child.work, job, cancellable=True, limiter=limiter)
    except anyio.BrokenWorkerProcess as e:
        raise ProcessDied(
            f"the child process of attempt {attempt} of step {call.name!r} ended before it "
            "answered: it was killed, ran out of memory, crashed, or could not start"
        ) from e
    except Exception as e:
        raise InvalidArguments(
            f"the arguments of step {call.name!r} cannot be sent to a child process: "
            f"{type(e).__name__}: {e}",
            hint="pass what pickle can carry: data, not open files, locks or local functions",
        ) from e
    return _decode(data)


def _job(call: StepCall[Any], current: Current) -> Job:
    definition: StepDefinition = call.definition
    fn = definition.fn
    return Job(
        parent=process_id(), checked=_boot(), module=fn.__module__,
        file=_file_of(fn.__module__),
        qualname=fn.__qualname__, args=call.args, kwargs=call.kwargs, place=current.place(),
    )  # fmt: skip


def _file_of(module: str) -> str:
    """Where it was loaded from; empty if from no file."""
    return getattr(sys.modules.get(module), "__file__", None) or ""
