"""More workers, and more live runs: runs a second, lists, and what a look over all of them costs.

The runs of the first part are worked off by `durable worker` processes at a server of Google's
API that answers at once. Those of the second part are written straight into a bucket in memory,
held by a worker that lives; another worker beside them does nothing but look, on a virtual clock.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import anyio
from dispatch import lists_made
from dispatch_flow import begin, several
from harness import machine
from prepared import request
from shapes import cpu_seconds, resident_mb
from steps_http import BUCKET, server
from trio.testing import MockClock
from workers import working

from durable import connect
from durable.decorators import workflows
from durable.protocol import names, records
from durable.protocol.records import Lease
from durable.runtime import markers
from durable.runtime.identity import Options
from durable.runtime.worker import Worker
from durable.store import REMOTE_PACE, Store
from durable.store.memory import MemoryBackend
from durable.testing.virtual import virtual_bucket, virtual_system

WORKERS = (1, 2, 4, 8)
RUNS = 200
LIVE = (1000, 10_000, 100_000)
WATCHED = 300.0  # simulated seconds
FOREVER = 1e9  # seconds: the ttl of the lease of the worker that holds them


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure and print; returns the figures, ready for JSON."""
    figures: dict[str, Any] = {}
    print(f"{'workers':>9}{'runs/s':>9}{'lists a run':>13}")
    for number in WORKERS:
        rate, lists = _work_off(number, options.folder)
        print(f"{number:>9}{rate:>9.0f}{lists:>13.2f}")
        figures |= {f"runs_per_s_{number}": round(rate, 1), f"lists_per_run_{number}": lists}
    print(f"\n{'live runs':>9}{'lists/min':>11}{'CPU s/min':>11}{'MB added':>10}{'made in s':>11}")
    for live in LIVE:
        looked = anyio.run(
            _look, live,
            backend="trio", backend_options={"clock": MockClock(autojump_threshold=0)},
        )  # fmt: skip
        print(
            f"{live:>9,}{looked['lists']:>11.1f}{looked['cpu']:>11.3f}{looked['mb']:>10.1f}"
            f"{looked['made']:>11.1f}"
        )
        figures |= {f"sweep_{name}_{live}": round(value, 3) for name, value in looked.items()}
    load = round(os.getloadavg()[0], 1)
    print(f"\n{machine()}; load {load}")
    return {**figures, "machine": machine(), "load": load}


def _work_off(number: int, folder: str | None) -> tuple[float, float]:
    """Runs a second, from the first start to the last end; lists for each."""
    with tempfile.TemporaryDirectory(dir=folder) as here, server(0) as address:
        os.environ["STORAGE_EMULATOR_HOST"] = address
        url = f"gs://{BUCKET}/runs"
        try:
            with working(url, Path(here), number):
                return anyio.run(_start_and_wait, url, number)
        finally:
            del os.environ["STORAGE_EMULATOR_HOST"]


async def _start_and_wait(url: str, number: int) -> tuple[float, float]:
    async with connect(url) as client:
        for _ in range(number):  # the workers are there
            await (await client.start(begin)).result()
        while len((await client.store.page(names.PRESENCE)).items) < number:
            await anyio.sleep(0.1)
        lists, began = lists_made() or 0, time.monotonic()

        async def one() -> None:
            handle = await client.start(several)
            await handle.result()

        async with anyio.create_task_group() as tasks:
            for _ in range(RUNS):
                tasks.start_soon(one)
        took = time.monotonic() - began
    return RUNS / took, round(((lists_made() or 0) - lists) / RUNS, 2)


class _Remote(MemoryBackend):
    """Polled as a bucket is."""

    pace = REMOTE_PACE


async def _look(live: int) -> dict[str, float]:
    began = time.perf_counter()
    bucket = virtual_bucket()
    store = Store(_Remote(bucket), system=virtual_system(1))
    holder = "h" * 16
    lease = Lease(worker=holder, ttl=FOREVER, margin=2.0, nonce=holder)
    bucket.create(names.worker(holder), records.encode(lease), {"owner": holder}, True)
    start = request(store, begin)
    for i in range(live):
        marker = markers.for_start(f"run-{i}", start, holder=holder, owner=holder)
        bucket.create(names.start(f"run-{i}"), records.encode(start), {"nonce": start.nonce}, True)
        meta = {
            "holder": holder, "owner": holder, "nonce": marker.nonce, "workflow": start.workflow,
            "instance": start.instance, "created": repr(start.created),
        }  # fmt: skip
        bucket.create(names.marker("default", f"run-{i}"), records.encode(marker), meta, True)
    made, before = time.perf_counter() - began, resident_mb()
    worker = Worker(
        Store(_Remote(bucket), system=virtual_system(2)),
        workflows(),
        Options(renew_in_thread=False),
    )
    async with anyio.create_task_group() as tasks:
        await tasks.start(worker.run)
        await anyio.sleep(WATCHED)
        lists, cpu = bucket.calls["list"], cpu_seconds()
        await anyio.sleep(WATCHED)
        minutes = WATCHED / 60
        figures = {
            "lists": (bucket.calls["list"] - lists) / minutes,
            "cpu": (cpu_seconds() - cpu) / minutes,
            "mb": max(0.0, resident_mb() - before), "made": made,
        }  # fmt: skip
        assert not worker.runners
        worker.stop()
    return figures
