"""Where a replay stops, and the debugger there.

The replay tells of its calls in its event loop. There async code is at the call that is told of,
so the debugger opens at once; sync code waits in a thread of its own, where a trace function opens
it as soon as the workflow goes on.
"""

from __future__ import annotations

import pdb as debugger  # noqa: T100  # what `replay --pdb` is for
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeAlias

import msgspec

import durable
from durable.runtime.definitions import WorkflowDefinition
from durable.runtime.surroundings import Progress

Trace: TypeAlias = Callable[[FrameType, str, Any], Any]  # as `sys.settrace` has it

_OURS = str(Path(durable.__file__).parent)
_PARTS = {"replay", "drift", "unrecorded"}  # what a replay tells of
_SAID = {"replay": "has its outcome", "drift": "differs", "unrecorded": "is not recorded"}


@dataclass
class Watcher:
    """Stops the replay once the call `until` has got its outcome.

    Attributes:
        until: a call's path, or a step's name for its first call; None: to the end.
        pdb: do not stop but open the debugger in the workflow's function, there or where the code
            parts from the record.
        reached: whether it came to that call.
    """

    until: str | None
    pdb: bool
    reached: bool = False
    _is_async: bool = True
    _entry: CodeType | None = None  # what calls the workflow's function
    _wanted: Progress | None = None  # sync code is to stop, because of this call
    _session: debugger.Pdb | None = None
    _ended: threading.Event = field(default_factory=threading.Event)

    @property
    def left(self) -> bool:
        """Whether the user has left the debugger, and with it the replay."""
        return self._session is not None and self._session.quitting

    def seen(self, definition: WorkflowDefinition) -> WorkflowDefinition:
        """The same workflow, which stops where the debugger is to open."""
        self._is_async, fn = definition.is_async, definition.fn
        if definition.is_async:
            return definition

        def call(*args: object, **kwargs: object) -> object:
            sys.settrace(self._trace)  # of this thread
            try:
                return fn(*args, **kwargs)
            finally:
                sys.settrace(None)
                self._ended.set()

        self._entry = call.__code__
        return msgspec.structs.replace(definition, fn=call)

    def wait(self) -> None:
        """Block until sync code is through where it was to stop: the replay may be over before."""
        if self._wanted is not None or (self._session is not None and not self._is_async):
            self._ended.wait()

    def __call__(self, progress: Progress) -> bool:
        if progress.kind not in _PARTS or self.left:
            return True
        reached = self.until is not None and self.until in {progress.path, progress.name}
        self.reached |= reached
        if not self.pdb:
            return not (reached and progress.kind == "replay")
        if reached or progress.kind != "replay":
            if self._is_async:
                self._open(progress, _users_frame(sys._getframe()) or sys._getframe())
            else:
                self._wanted = progress
        return True

    # -- sync code ---------------------------------------------------------------------------------

    def _trace(self, frame: FrameType, _event: str, _argument: object) -> Trace | None:
        """Follow the workflow's function and what that calls, but nothing of durable's."""
        back = frame.f_back
        followed = back is not None and (back.f_code == self._entry or back.f_trace is not None)
        return self._look if followed and not _is_ours(frame) else None

    def _look(self, frame: FrameType, event: str, argument: object) -> Trace | None:
        if self._wanted is None:
            return self._look
        dispatch: Any = self._open(self._wanted, frame).trace_dispatch
        self._wanted = None  # now the session says that there is something to wait for
        trace: Trace | None = dispatch(frame, event, argument)
        return trace

    # -- the debugger ------------------------------------------------------------------------------

    def _open(self, progress: Progress, frame: FrameType) -> debugger.Pdb:
        print(
            f"{progress.path} {_SAID[progress.kind]}; `n` goes on in the workflow", file=sys.stderr
        )
        session = self._session = debugger.Pdb(nosigint=True)
        session.reset()
        # `set_trace` would stop in the next function that is called, which is one of ours.
        bottom: FrameType | None = frame
        while bottom is not None and not _is_ours(bottom):  # `n` goes on in its callers, too
            bottom.f_trace, session.botframe = session.trace_dispatch, bottom
            bottom = bottom.f_back
        session.set_next(frame)
        sys.settrace(session.trace_dispatch)
        return session


def _users_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame that is not the framework's: the function that awaits the call."""
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    return frame


def _is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_OURS)
