"""Ctrl-C and SIGTERM: the first asks politely, the second ends the process at once."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator

from durable.cli.exits import INTERRUPTED
from durable.runtime.turns import waker

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def asked_to_stop(act: Callable[[], object]) -> Iterator[None]:
    """Inside, the first of these signals calls `act` in this event loop.

    The handlers are plain ones, not the event loop's: a loop that user code blocks could not
    notice the second signal.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may have handlers
        return
    wake = waker()
    asked = False

    def handle(_number: int, _frame: object) -> None:
        nonlocal asked
        if asked:
            os.write(sys.stderr.fileno(), b"interrupted: ended at once\n")
            os._exit(INTERRUPTED)
        asked = True
        wake(act)

    before = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
