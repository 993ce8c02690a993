"""What runs that wait cost: 100,000 of them beside one worker, on a virtual clock.

The runs are put into a bucket in memory as a worker leaves them: `start`, the claim of the wait and
the timer hint. They sleep for a year, but for one.
"""

from __future__ import annotations

import argparse
import gc
import resource
from pathlib import Path
from typing import Any

import anyio
import msgspec
from harness import machine
from trio.testing import MockClock

from durable import sleep, workflow
from durable.decorators import workflows
from durable.protocol import names, records, values
from durable.protocol.records import Start, Timer, Wait
from durable.runtime.identity import Options
from durable.runtime.timers import name_of
from durable.runtime.worker import Worker
from durable.store import REMOTE_PACE, Store
from durable.store.memory import Bucket, MemoryBackend
from durable.testing.virtual import virtual_bucket, virtual_system

RUNS = 100_000
YEAR = 365 * 86400.0
WATCHED = 600.0  # simulated seconds
DUE_AFTER = 60.0  # seconds after that the one run is due
OWN = ("presence/", "workers/", "bells/")  # what a worker writes for itself, parked runs or not


@workflow(name="bench.reminder")
async def reminder(seconds: float) -> str:
    await sleep(seconds)
    return "due"


class _Remote(MemoryBackend):
    """Polled as a bucket is."""

    pace = REMOTE_PACE


def measure(_options: argparse.Namespace) -> dict[str, Any]:
    """Measure and print; returns the figures, ready for JSON."""
    figures = anyio.run(
        _measure, backend="trio", backend_options={"clock": MockClock(autojump_threshold=0)}
    )
    print(
        f"{RUNS:,} parked runs, {WATCHED / 60:g} simulated minutes, one worker\n"
        f"  writes          {figures['writes']}\n"
        f"  lists           {figures['lists']}\n"
        f"  memory added    {figures['rss_mb']:.1f} MB\n"
        f"  one run due     {figures['wake_s']:.2f} s after its moment it was over"
    )
    return {**figures, "runs": RUNS, "machine": machine()}


async def _measure() -> dict[str, Any]:
    bucket = virtual_bucket()
    now = Store(_Remote(bucket), system=virtual_system(1)).now()
    due = now + WATCHED + DUE_AFTER
    for i in range(RUNS):
        _park(bucket, f"r{i}", now + YEAR + i)
    _park(bucket, "due", due)
    gc.collect()
    before = _rss_mb()
    store = Store(_Remote(bucket), system=virtual_system(2))
    worker = Worker(store, workflows(), Options(renew_in_thread=False))
    async with anyio.create_task_group() as tasks:
        await tasks.start(worker.run)
        bucket.log.clear()
        bucket.calls.clear()
        await anyio.sleep(WATCHED)
        writes = [n for verb, n in bucket.log if verb not in {"read", "list"}]
        lists = bucket.calls["list"]
        added = _rss_mb() - before
        name = names.result("due", "i")
        while (result := bucket.read(name)) is None:
            await anyio.sleep(0.1)
        worker.stop()
    return {
        "writes": len([n for n in writes if not n.startswith(OWN)]),
        "lists": lists,
        "rss_mb": round(max(0.0, added), 1),
        "wake_s": round(result.created - due, 2),
    }


def _park(bucket: Bucket, run: str, due: float) -> None:
    definition = reminder.definition
    call = values.encode_call(definition.signature, definition.hints, (1.0,), {})
    start = Start(workflow=definition.name, input=msgspec.Raw(call), instance="i", nonce=run)
    wait = Wait("sleep.1", "sleep", "sleep", 1, run, 0.0, due)
    timer = Timer(
        run=run, instance="i", workflow=definition.name, queue="default", nonce=run,
        path="sleep.1", due=due,
    )  # fmt: skip
    for name, record in (
        (names.start(run), start),
        (names.wait(run, "i", "sleep.1"), wait),
        (name_of(run, "i", "sleep.1", due), timer),
    ):
        assert bucket.create(name, records.encode(record), {"nonce": run}, True)


def _rss_mb() -> float:
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    line = next(x for x in status.read_text().splitlines() if x.startswith("VmRSS"))
    return int(line.split()[1]) / 1024
