"""Warnings of what a workflow does itself, and would do again, or otherwise, on a replay.

Python tells an audit hook of files that are opened, of connections, threads and processes. A hook
cannot be taken away again, and each of its calls costs a quarter of a microsecond, also for
events that are of no interest. So it is set where people develop: in test environments, by
`durable run`, and where DURABLE_WATCH=1. Python has no such events for clocks and chance.

It warns only of what the workflow's own code does, or what that calls: not of steps, of durable
itself, of imports, nor of tasks and threads that the workflow started.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import warnings
import zoneinfo
from types import FrameType
from typing import Any

from durable.errors import NotRepeatable
from durable.runtime.scopes import Scope, here

# Audit events: the rule of `durable lint`, and what Python calls it.
_EVENTS = {
    "socket.connect": ("DUR004", "a connection"),
    "socket.getaddrinfo": ("DUR004", "a look-up of an address"),
    "open": ("DUR005", "opening a file"),
    "os.listdir": ("DUR005", "listing a folder"),
    "os.mkdir": ("DUR005", "making a folder"),
    "os.remove": ("DUR005", "removing a file"),
    "os.rename": ("DUR005", "renaming a file"),
    "os.rmdir": ("DUR005", "removing a folder"),
    "os.scandir": ("DUR005", "listing a folder"),
    "_thread.start_new_thread": ("DUR006", "starting a thread"),
    "_thread.start_joinable_thread": ("DUR006", "starting a thread"),
    "os.fork": ("DUR006", "starting a process"),
    "os.posix_spawn": ("DUR006", "starting a process"),
    "os.system": ("DUR006", "starting a process"),
    "subprocess.Popen": ("DUR006", "starting a process"),
    "time.sleep": ("DUR011", "sleeping"),
}

# What opens files for reasons of its own: code, and tables that come with it.
_QUIET = {
    "_frozen_importlib", "_frozen_importlib_external", "importlib._bootstrap",
    "importlib._bootstrap_external", "importlib.metadata", "linecache", "logging", "mimetypes",
    "traceback", "warnings", "zoneinfo", "zoneinfo._common",
}  # fmt: skip

# Where they are: reading there is reading code, whoever does it, and be it in C.
_INSTALLED = tuple(
    os.path.join(folder, "")
    for folder in [
        *(sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")),
        *zoneinfo.TZPATH,
    ]
)
_LOOKS = ("os.listdir", "os.scandir")

# Where durable calls the code of a workflow or of a branch.
_CALLERS = {
    ("durable.runtime.execution", "run_function"),
    ("durable.runtime.threads", "_apply_in"),
    ("durable.runtime.branches", "branch"),
    ("durable.concurrency", "branch"),
}

_set = False


def begin() -> None:
    """Watch from now on, for the rest of this process."""
    global _set  # noqa: PLW0603  # as the hook is of the whole process
    if not _set:
        _set = True
        sys.addaudithook(_hook)


# The defaults are there to the very end of the process, when globals are gone.
def _hook(event: str, args: Any, events: Any = _EVENTS, here: Any = here, of: Any = Scope) -> None:
    if event in events and type(here.get()) is of and not _reads_what_is_installed(event, args):
        place = _place(sys._getframe(1))  # no other way to tell who asks
        if place is not None:
            code, what = events[event]
            _warn(code, what, place)


def _reads_what_is_installed(event: str, args: tuple[Any, ...]) -> bool:
    """Whether it can only be otherwise on a replay if the code is."""
    reads = event in _LOOKS or (event == "open" and not args[2] & (os.O_WRONLY | os.O_RDWR))
    if not reads or not isinstance(args[0], str):
        return False
    return os.path.join(args[0], "").startswith(_INSTALLED)


def _place(frame: FrameType | None) -> FrameType | None:
    """The line of the workflow's code that does it; None if it is no such code."""
    frames: list[FrameType] = []
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module in _QUIET:
            return None
        if module.startswith("durable."):
            if not frames or (module, frame.f_code.co_name) not in _CALLERS:
                return None
            workflow = frames[-1].f_code.co_filename
            return next(f for f in frames if f.f_code.co_filename == workflow)
        frames.append(frame)
        frame = frame.f_back
    return None


def _warn(code: str, what: str, frame: FrameType) -> None:
    instead = "durable.sleep" if code == "DUR011" else "a step"
    warnings.warn_explicit(
        f"{code}: {what} in a workflow, which is done again on each replay; use {instead}",
        NotRepeatable,
        filename=frame.f_code.co_filename,
        lineno=frame.f_lineno,
        module=frame.f_globals.get("__name__", ""),
        registry=frame.f_globals.setdefault("__warningregistry__", {}),
    )
