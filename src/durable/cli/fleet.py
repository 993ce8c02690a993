"""`worker --processes N`: the same worker N times, each in a process of its own.

A process that dies is started anew; its runs go on in the others at once, because its lock file
proves that it is dead. The first signal is handed on, so that all drain side by side.
"""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys
from collections.abc import Sequence

import anyio

from durable.cli import exits
from durable.cli.interrupts import asked_to_stop

log = logging.getLogger("durable")

LOOK_PERIOD = 0.1  # seconds between two looks at the processes
AGAIN_AFTER = 1.0  # seconds before one that died is started anew


def run(arguments: argparse.Namespace) -> int:
    """Until all have ended: asked to, or because nothing is left to do."""
    return anyio.run(_run, _words(arguments.words), arguments.processes)


def _words(words: Sequence[str]) -> list[str]:
    """The command line of one of them."""
    kept: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word == "--processes":
            skip = True
        elif not word.startswith("--processes="):
            kept.append(word)
    return [sys.executable, "-m", "durable.cli", *kept]


def _begin(command: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command)  # noqa: S603  # our own command line


async def _run(command: Sequence[str], count: int) -> int:
    stopping = False
    running = [_begin(command) for _ in range(count)]

    def stop() -> None:
        nonlocal stopping
        stopping = True
        for process in running:
            process.terminate()

    codes: list[int] = []
    with asked_to_stop(stop):
        while running:
            await anyio.sleep(LOOK_PERIOD)
            for process in [p for p in running if p.poll() is not None]:
                running.remove(process)
                code = process.returncode
                if code >= 0 or stopping:
                    codes.append(code)  # it ended by itself
                    continue
                log.warning("worker process %d was killed: started anew", process.pid)
                await anyio.sleep(AGAIN_AFTER)
                if not stopping:
                    running.append(_begin(command))
    return max((code for code in codes if code >= 0), default=exits.DONE)
