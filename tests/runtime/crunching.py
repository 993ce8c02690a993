"""Steps that run in child processes, in a module that children can import.

    python -m tests.runtime.crunching FOLDER

runs `flow` there: its step writes the id of its process to FOLDER/child, then computes for ever.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import anyio

import durable
from durable import connect, step, workflow
from durable.errors import Fatal
from tests.facts import is_alive


@dataclass
class Point:
    x: int
    y: int


class Odd(Exception):
    """Has arguments of its own."""

    def __init__(self, number: int, why: str) -> None:
        super().__init__(number, why)


@step(process=True, attempts=1)
def swap(point: Point) -> Point:
    return Point(point.y, point.x)


@step(process=True)
def who() -> tuple[int, str, int]:
    me = durable.current()
    return os.getpid(), me.idempotency_key, me.attempt


@step(process=True, retry=durable.Retry(attempts=2, first=0))
def break_down(kind: str) -> object:
    match kind:
        case "odd":
            raise Odd(3, "odd")
        case "fatal":
            raise Fatal("no")
        case "exit":
            sys.exit(3)
        case "interrupt":
            raise KeyboardInterrupt
        case "crash":
            os._exit(9)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "unstorable":
            return object()
    return None


@step(process=True, attempts=1)
def says(word: str) -> None:
    match word:
        case "heartbeat":
            durable.current().heartbeat(1)
        case "publish":
            durable.publish("rows", 1)


@step(process=True, attempts=1)
def spin(folder: str) -> None:
    Path(folder, "child").write_text(str(os.getpid()))
    while True:
        pass


@step(process=True, retry=durable.Retry(attempts=2, first=0))
def spin_once(folder: str) -> int:
    if durable.current().attempt == 1:
        spin(folder)
    return durable.current().attempt


ended: list[bool] = []  # whether the body's process was gone when it was undone; here, not there


def look(folder: str) -> None:
    ended.append(not is_alive(int(Path(folder, "child").read_text())))


@step(process=True, attempts=1, undo=look)
def spin_undoably(folder: str) -> None:
    spin(folder)


@workflow(name="crunching flow")
async def flow(folder: str) -> None:
    await spin.call(folder)


@step(process=True, timeout="1h")
def fibonacci(n: int) -> int:
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


@workflow(name="crunching timed")
async def timed(n: int) -> int:
    return await fibonacci.call(n)


async def main(folder: str) -> None:
    async with connect("memory:") as client:
        await client.run(flow, folder)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1])
