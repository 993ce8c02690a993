"""A limited queue under fire: eight workers, three slots, and workers that are killed.

Twice: 2,000 jobs in a file, and 200 at a server of Google's API that takes one write a second for
each name, as a bucket does. Every body notes when it begins and ends; a body whose process was
killed ends with the process. So the most that went on at once is what the machine's clock saw.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from harness import SOURCE, machine
from queues_flow import LIMIT, job
from steps_http import BUCKET, server

from durable import connect

WORKERS = 8
KILL_EVERY = 4.0  # seconds, on average; none in the last stretch
SEED = 2026
DEADLINE = 1500.0  # seconds for all jobs
HERE = Path(__file__).parent


@dataclass
class Fleet:
    """The workers, some of which are killed and replaced."""

    url: str
    marks: Path
    environment: dict[str, str]
    alive: list[subprocess.Popen[bytes]] = field(default_factory=list)
    died: dict[int, float] = field(default_factory=dict)  # by process id: when

    def add(self) -> None:
        command = [
            sys.executable, "-m", "durable.cli", "--store", self.url, "worker",
            str(HERE / "queues_flow.py"), "--queues", "bench", "--concurrency", "4",
        ]  # fmt: skip
        self.alive.append(
            subprocess.Popen(
                command, cwd=self.marks.parent, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, env=self.environment,
            )
        )  # fmt: skip

    def kill_one(self, chance: random.Random) -> None:
        victim = self.alive.pop(chance.randrange(len(self.alive)))
        victim.kill()
        victim.wait()
        self.died[victim.pid] = time.monotonic()
        self.add()

    def stop(self) -> None:
        for process in self.alive:
            process.terminate()
        for process in self.alive:
            process.wait(timeout=60)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure and print; returns the figures, ready for JSON."""
    many, few = options.jobs or 2000, min(options.jobs or 200, 200)
    with tempfile.TemporaryDirectory(dir=options.folder) as place:
        file = _run(many, f"sqlite:///{place}/bench.db", Path(place), {})
    _print(f"{many} jobs in a file", file)
    with tempfile.TemporaryDirectory(dir=options.folder) as place, server(0, rate_limit=True) as at:
        bucket = _run(few, f"gs://{BUCKET}/queues", Path(place), {"STORAGE_EMULATOR_HOST": at})
    _print(f"{few} jobs in a bucket that takes one write a second for each name", bucket)
    print(f"\n{machine()}; {WORKERS} workers, limit {LIMIT}")
    return {
        **file,
        **{f"{name}_rate_limited": figure for name, figure in bucket.items()},
        "max_slots": max(file["max_slots"], bucket["max_slots"]),
        "limit": LIMIT, "workers": WORKERS, "machine": machine(),
    }  # fmt: skip


def _run(jobs: int, url: str, place: Path, environment: dict[str, str]) -> dict[str, Any]:
    marks = place / "marks"
    marks.touch()
    own = {
        "BENCH_MARKS": str(marks), "DURABLE_RUNTIME_DIR": str(place / "runtime"),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")])),
    }  # fmt: skip
    with _environment({**own, **environment}):
        return anyio.run(_measure, jobs, url, marks)


@contextlib.contextmanager
def _environment(more: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(more)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


async def _measure(jobs: int, url: str, marks: Path) -> dict[str, Any]:
    fleet, chance = Fleet(url, marks, dict(os.environ)), random.Random(SEED)
    async with connect(url) as client:
        started: dict[int, float] = {}
        limit = anyio.CapacityLimiter(20)

        async def start(number: int) -> None:
            async with limit:
                await client.start(job.options(id=f"job-{number}"), number)
                started[number] = time.monotonic()

        async with anyio.create_task_group() as tasks:
            for number in range(jobs):
                tasks.start_soon(start, number)
        began = time.monotonic()
        for _ in range(WORKERS):
            fleet.add()
        try:
            await _until_done(fleet, jobs, marks, chance)
            seconds = time.monotonic() - began
            results = {n: await _result(client, n) for n in range(jobs)}
            leaked = await _left(client)
        finally:
            fleet.stop()
    figures = _judge(marks, fleet.died, started, began)
    wrong = sum(results[n] != n for n in results)
    return {
        "jobs": jobs, "seconds": round(seconds, 1), "jobs_per_s": round(jobs / seconds, 1),
        "kills": len(fleet.died), "lost": wrong, "leaked": leaked, **figures,
    }  # fmt: skip


async def _until_done(fleet: Fleet, jobs: int, marks: Path, chance: random.Random) -> None:
    until, kill_at = time.monotonic() + DEADLINE, time.monotonic() + KILL_EVERY
    while (done := _ended(marks)) < jobs and time.monotonic() < until:
        await anyio.sleep(0.25)
        if time.monotonic() > kill_at and done < 0.9 * jobs:
            fleet.kill_one(chance)
            kill_at = time.monotonic() + chance.uniform(0.5, 1.5) * KILL_EVERY


def _ended(marks: Path) -> int:
    return len({line.split()[1] for line in marks.read_text().splitlines() if line[:3] == "end"})


async def _result(client: Any, number: int) -> object:
    handle = await client.get(f"job-{number}")
    with contextlib.suppress(TimeoutError):
        return await handle.result(timeout=120)
    return None


async def _left(client: Any) -> int:
    """Slots and places in line that are still there once all runs are over."""
    left: list[str] = []
    for _ in range(120):
        names = [stored.name async for stored in client.store.list("queues/bench/")]
        left = [name for name in names if "/slots/" in name or "/pending/" in name]
        if not left:
            break
        await anyio.sleep(1)
    return len(left)


# -- what the marks say ----------------------------------------------------------------------------


def _judge(
    marks: Path, died: dict[int, float], started: dict[int, float], began: float
) -> dict[str, Any]:
    bodies = _bodies(marks, died)
    first: dict[int, float] = {}
    for number, begin, _ in bodies:
        first[number] = min(begin, first.get(number, begin))
    waits = sorted(first[n] - max(started[n], began) for n in first)
    places = {n: i for i, n in enumerate(sorted(first, key=first.__getitem__))}
    order = {n: i for i, n in enumerate(sorted(first, key=started.__getitem__))}
    return {
        "max_slots": _most(bodies), "doubled": _doubled(bodies),
        "repeated": len(bodies) - len(first),
        "wait_p50_s": round(statistics.median(waits), 2),
        "wait_p99_s": round(waits[int(0.99 * (len(waits) - 1))], 2),
        "wait_max_s": round(waits[-1], 2),
        "places_overtaken_p99": sorted(abs(places[n] - order[n]) for n in first)[
            int(0.99 * (len(first) - 1))
        ],
    }  # fmt: skip


def _bodies(marks: Path, died: dict[int, float]) -> list[tuple[int, float, float]]:
    """Each body: its job, its begin and its end; one that was cut off ends with its process."""
    found: list[tuple[int, float, float]] = []
    open_bodies: dict[tuple[str, str], float] = {}
    for line in marks.read_text().splitlines():
        word, number, process, at = line.split()
        if word == "begin":
            open_bodies[number, process] = float(at)
        else:
            found.append((int(number), open_bodies.pop((number, process)), float(at)))
    for (number, process), begin in open_bodies.items():
        found.append((int(number), begin, died[int(process)]))
    return sorted(found, key=lambda body: body[1])


def _most(bodies: list[tuple[int, float, float]]) -> int:
    """How many went on at once."""
    changes = [(begin, 1) for _, begin, _ in bodies] + [(end, -1) for _, _, end in bodies]
    now = most = 0
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most


def _doubled(bodies: list[tuple[int, float, float]]) -> int:
    """Jobs whose body went on in two places at once."""
    by_job: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for number, begin, end in bodies:
        by_job[number].append((begin, end))
    return sum(
        any(later[0] < earlier[1] for earlier, later in itertools.pairwise(spans))
        for spans in by_job.values()
    )


def _print(title: str, figures: dict[str, Any]) -> None:
    print(f"\n{title}")
    for name, figure in figures.items():
        print(f"  {name:<22}{figure}")
