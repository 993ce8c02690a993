"""Where a replay stops, and the debugger there."""

from __future__ import annotations

import pdb as debugger  # noqa: T100  # what `replay --pdb` is for
import sys
from pathlib import Path
from types import FrameType

import durable
from durable.client.replaying import Watch
from durable.runtime.surroundings import Progress

_OURS = str(Path(durable.__file__).parent)
_PARTS = {"replay", "drift", "unrecorded"}  # what a replay tells of


def watch(until: str | None, *, pdb: bool) -> Watch:
    """A watcher that stops the replay once the call `until` has got its outcome.

    Args:
        until: a call's path, or a step's name for its first call; None: to the end.
        pdb: do not stop but open the debugger in the workflow's function, there or where the code
            parts from the record.
    """

    def goes_on(progress: Progress) -> bool:
        if progress.kind not in _PARTS:
            return True
        reached = until is not None and until in {progress.path, progress.name}
        if not pdb:
            return not (reached and progress.kind == "replay")
        if reached or progress.kind != "replay":
            _open(progress)
        return True

    return goes_on


def _open(progress: Progress) -> None:
    frame = _users_frame(sys._getframe()) or sys._getframe()
    said = {"replay": "has its outcome", "drift": "differs", "unrecorded": "is not recorded"}
    print(f"{progress.path} {said[progress.kind]}; `n` goes on in the workflow", file=sys.stderr)
    session = debugger.Pdb(nosigint=True)
    session.reset()
    # `set_trace` would stop in the next function that is called, which is one of ours.
    frame.f_trace = session.trace_dispatch
    session.botframe = frame
    session.set_next(frame)
    sys.settrace(session.trace_dispatch)


def _users_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame that is not the framework's: the function that awaits the call."""
    while frame is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    return frame
