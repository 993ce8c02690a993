"""In a child process: one body of a step, called from its worker (see `processes`).

It ends with the worker, however that ends: a worker killed by `kill -9` closes the pipe, and its
children see another parent. What a body does in C without ever releasing the interpreter's lock
is noticed when it returns.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import typing
from collections.abc import Callable
from typing import Any

import msgspec

from durable.errors import InvalidDefinition, NotInWorkflow, ProcessDied
from durable.protocol import failures, values
from durable.protocol.failures import Failure
from durable.runtime import modules
from durable.runtime.inside import Inside
from durable.runtime.ownership import Ownership
from durable.runtime.scopes import Current, here
from durable.system import System

FRESH = 2.0  # seconds; less than the margin between a lease's end for its holder and for others
_LOOK_PERIOD = 1000  # milliseconds

_boot = System().boot  # counts alike in every process of a machine
_watching = False


class Job(typing.NamedTuple):
    """What the worker asks for.

    Attributes:
        parent: its process id.
        checked: when it last knew that it holds the run, on the boot clock.
        place: what the body may know of where it runs; see `Current.place`.
    """

    parent: int
    checked: float
    module: str
    file: str
    qualname: str
    args: tuple[object, ...]
    kwargs: dict[str, object]
    place: tuple[Ownership, str, int]


class Answer(msgspec.Struct, omit_defaults=True):
    """What came of it. `late`: nothing, because the worker may have lost the run meanwhile."""

    value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    failure: Failure | None = None
    late: bool = False


class _Cut(Current, eq=False):
    """The attempt as its body sees it in a child, which tells its worker nothing but the end."""

    def inside(self, word: str) -> Inside:
        raise NotInWorkflow(
            f"{word}() was called in a step with process=True: its child process tells its worker "
            "nothing before it ends",
            hint="split the work into several such steps, each of which is recorded, and say "
            "between them how far it has come; or leave out process=True",
            run=self.run_id,
        )


def work(job: Job) -> bytes:
    """Call the body; an `Answer` as JSON. What the body raises is in it."""
    _belong_to(job.parent)
    if _boot() - job.checked > FRESH:
        return msgspec.json.encode(Answer(late=True))
    token = here.set(_Cut(*job.place))
    try:
        fn = _function(job)
        returns = typing.get_type_hints(fn, include_extras=True).get("return")
        value = fn(*job.args, **job.kwargs)
        raw, _ = values.encode_result(value, returns, name=job.qualname)
        answer = Answer(value=msgspec.Raw(raw))
    except Exception as e:  # noqa: BLE001  # whatever it is, the worker decides
        answer = Answer(failure=failures.from_exception(e))
    except BaseException as e:  # noqa: BLE001  # `sys.exit` ends the body, not the pool's process
        died = ProcessDied(f"the body of step {job.qualname!r} ended its process: {e!r}")
        answer = Answer(failure=failures.from_exception(died))
    finally:
        here.reset(token)
    return msgspec.json.encode(answer)


def _function(job: Job) -> Callable[..., Any]:
    found: Any = modules.find(job.module, job.file)
    for part in job.qualname.split("."):
        found = getattr(found, part, None)
    fn: object = getattr(found, "__wrapped__", found)  # as decorated
    if not callable(fn):
        raise InvalidDefinition(
            f"a child process finds no function {job.qualname!r} in module {job.module!r}",
            hint="define it at the top level of its module, not behind a condition",
        )
    return fn


def _belong_to(parent: int) -> None:
    """Once for each child: end with the parent, leave Ctrl-C to it, write to nobody's pipe."""
    global _watching  # noqa: PLW0603  # of this process
    if not _watching:
        _watching = True
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    pipe = select.poll()
    pipe.register(0, 0)  # a pipe that is closed is always told
    while os.getppid() == parent and not pipe.poll(_LOOK_PERIOD):
        pass
    os._exit(1)
