"""`worker --processes N`: the same worker N times, each in a process of its own.

A process that dies is started anew; its runs go on in the others at once, because its lock file
proves that it is dead. The first signal is handed on, so that all drain side by side.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

import anyio
import msgspec

from durable.cli import exits, output
from durable.cli.interrupts import asked_to_stop

log = logging.getLogger("durable")

LOOK_PERIOD = 0.1  # seconds between two looks at the processes
AGAIN_AFTER = 1.0  # seconds before one that died is started anew


def run(arguments: argparse.Namespace) -> int:
    """Until all have ended: asked to, or because nothing is left to do."""
    with tempfile.TemporaryFile() if arguments.json else contextlib.nullcontext() as said:
        fleet = _Fleet(_words(arguments.words), arguments.processes, said)
        code = anyio.run(fleet.run)
        if said is not None:
            _tell(said)
    return code


def _tell(said: IO[bytes]) -> None:
    """One document of what the processes have said, each in a line."""
    said.seek(0)
    workers = [msgspec.Raw(line) for line in said.read().splitlines()]
    if workers:  # else each has told of an error
        output.document({"workers": workers})


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


@dataclass
class _Fleet:
    """The processes.

    Attributes:
        command: of each.
        said: the file that takes their standard output; None: it is this process's own.
    """

    command: Sequence[str]
    count: int
    said: IO[bytes] | None

    def _begin(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self.command, stdout=self.said)  # noqa: S603  # our command line

    async def run(self) -> int:
        stopping = False
        running: list[subprocess.Popen[bytes]] = []

        def stop() -> None:
            nonlocal stopping
            stopping = True
            for process in running:
                process.terminate()

        codes: list[int] = []
        with asked_to_stop(stop):  # from before the first says that it serves
            running += [self._begin() for _ in range(self.count)]
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
                        running.append(self._begin())
        return max((code for code in codes if code >= 0), default=exits.DONE)
