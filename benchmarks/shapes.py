"""The work that is measured, the same for everybody, and the meter that measures it."""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple, Self

import anyio


class Shape(NamedTuple):
    """So many runs of so many steps, at most `at_once` runs at a time."""

    runs: int
    steps: int
    at_once: int

    @property
    def total(self) -> int:
        return self.runs * self.steps

    def __str__(self) -> str:
        if self.runs == 1:
            return f"1 run x {self.steps:,} steps"
        return f"{self.runs} runs x {self.steps} steps, {self.at_once} at once"


SHAPES = {
    "sequential": Shape(1, 1000, 1),
    "short": Shape(1, 200, 1),  # where each step takes tens of milliseconds
    "concurrent": Shape(200, 10, 50),
    "crowd": Shape(512, 10, 256),  # more at once than one core can serve
    "half": Shape(100, 10, 25),  # what each of two processes does
    "in_flight": Shape(64, 60, 64),  # so many steps at once, while the event loop is watched
}
WATCHED = SHAPES["in_flight"]
LAG_SLEEP = 0.005  # seconds; as a heartbeat would sleep, only more often
URL = os.environ.get("BENCH_STORE", "sqlite:///durable.db")
WARM_UP = Shape(1, 10, 1)  # carried out by everybody before the meter starts


class Meter:
    """Wall time, and CPU time of all threads of this process, in seconds.

    with Meter() as meter: ...
    """

    wall = 0.0
    cpu = 0.0

    def __enter__(self) -> Self:
        gc.collect()  # else what came before decides whose measurement has to clean up
        _wait_for_the_others()
        self._cpu, self._wall = cpu_seconds(), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall, self.cpu = time.perf_counter() - self._wall, cpu_seconds() - self._cpu

    def report(self, **more: object) -> None:
        """Hand the figures to the process that started this one."""
        figures = {"wall": self.wall, "cpu": self.cpu, "began": self._wall, **more}
        print(json.dumps(figures))


def _wait_for_the_others() -> None:
    """Until every process of this measurement, all of them in one folder, is about to begin."""
    processes = int(os.environ.get("BENCH_PROCESSES", "1"))
    if processes > 1:
        Path(f"ready-{os.getpid()}").touch()
        while len(list(Path().glob("ready-*"))) < processes:
            time.sleep(0.005)


class Lag:
    """How late a sleeper in the same event loop wakes, in milliseconds; only for `WATCHED`.

    async with Lag(shape) as lag: ...
    """

    def __init__(self, shape: Shape) -> None:
        self._watching = shape == WATCHED
        self._late: list[float] = []

    async def __aenter__(self) -> Self:
        self._tasks = await anyio.create_task_group().__aenter__()
        if self._watching:
            self._tasks.start_soon(self._watch)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)

    def figures(self) -> dict[str, float]:
        """Ready to be reported; empty if nothing was watched."""
        if not self._watching:
            return {}
        late = sorted(self._late)
        return {
            "lag_p50": late[len(late) // 2],
            "lag_p99": late[len(late) * 99 // 100],
            "lag_max": late[-1],
        }

    async def _watch(self) -> None:
        while True:
            due = time.perf_counter() + LAG_SLEEP
            await anyio.sleep(LAG_SLEEP)
            self._late.append(1000 * (time.perf_counter() - due))


def cpu_seconds() -> float:
    """User and system time of this process so far, all threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def resident_mb() -> float:
    """The memory that this process occupies now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 1048576


def peak_mb() -> float:
    """The most memory that this program has occupied so far."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


async def each_run(shape: Shape, one: Callable[[int], Awaitable[object]]) -> None:
    """Do `one(number)` for every run, at most `at_once` at a time."""
    limiter = anyio.CapacityLimiter(shape.at_once)

    async def limited(number: int) -> None:
        async with limiter:
            await one(number)

    async with anyio.create_task_group() as tasks:
        for number in range(shape.runs):
            tasks.start_soon(limited, number)


def asked() -> tuple[str, Shape]:
    """What this process is to measure: `program.py VARIANT SHAPE`."""
    _, variant, shape = sys.argv
    return variant, SHAPES[shape]
