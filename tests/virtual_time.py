"""Time that passes in a test: virtual, so that hours of it take none.

A test that lets time pass, and a body that takes long, says so by `virtual_seconds`. What happens
in other threads and processes, and on the machine's clock, is waited for as a fact
(`tests/facts.py`); `tests/test_wall_time.py` knows the few places that sleep there all the same.
"""

from __future__ import annotations

import asyncio
import traceback

import anyio

ADVICE = (
    "would pass for real, on the machine's clock: run the test on a virtual one (`run` or "
    "`virtual` of tests/runtime/clocks.py), wait for the fact that it needs (`until` or "
    "`becomes_true` of tests/facts.py), or for ever where something else ends the wait"
)

_refused: list[str] = []


async def virtual_seconds(seconds: float) -> None:
    """Let so much virtual time pass.

    On a real clock the test fails, even if its code or a run's takes the error for its own.
    """
    if _is_real():
        stack = "".join(traceback.format_stack(limit=5)[:-1])
        _refused.append(f"{seconds:g} s {ADVICE}\n{stack}")
        raise AssertionError(_refused[-1])
    await anyio.sleep(seconds)  # real: not at all, as has just been asked


def refused() -> list[str]:
    """The times that would have passed for real since this was last asked."""
    told = _refused.copy()
    _refused.clear()
    return told


def _is_real() -> bool:
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        import trio

        return isinstance(trio.lowlevel.current_clock(), trio._core._run.SystemClock)
    return isinstance(loop, asyncio.BaseEventLoop) and (
        type(loop).time is asyncio.BaseEventLoop.time
    )
