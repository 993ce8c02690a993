"""Where a replay stops, and the debugger there."""

from __future__ import annotations

import pdb as debugger  # noqa: T100  # what `replay --pdb` is for
import sys
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import durable
from durable.runtime.surroundings import Progress

_OURS = str(Path(durable.__file__).parent)
_PARTS = {"replay", "drift", "unrecorded"}  # what a replay tells of


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
    _session: debugger.Pdb | None = None

    @property
    def left(self) -> bool:
        """Whether the user has left the debugger, and with it the replay."""
        return self._session is not None and self._session.quitting

    def __call__(self, progress: Progress) -> bool:
        if progress.kind not in _PARTS or self.left:
            return True
        reached = self.until is not None and self.until in {progress.path, progress.name}
        self.reached |= reached
        if not self.pdb:
            return not (reached and progress.kind == "replay")
        if reached or progress.kind != "replay":
            self._open(progress)
        return True

    def _open(self, progress: Progress) -> None:
        frame = _users_frame(sys._getframe()) or sys._getframe()
        said = {"replay": "has its outcome", "drift": "differs", "unrecorded": "is not recorded"}
        print(
            f"{progress.path} {said[progress.kind]}; `n` goes on in the workflow", file=sys.stderr
        )
        session = self._session = debugger.Pdb(nosigint=True)
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
