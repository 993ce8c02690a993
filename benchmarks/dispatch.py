"""From a start in one process to the first step in another: idle, and while work arrives."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
from dispatch_flow import begin
from harness import machine
from steps_http import BUCKET, server
from workers import working

from durable import connect
from durable.client import Client

IDLE = {"sqlite": (30, 0.2), "http_0": (12, 2.5)}  # starts, and seconds between them on average
ARRIVING = (60, 0.1)
SEED = 2026


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure and print; returns the figures, ready for JSON."""
    figures: dict[str, Any] = {}
    print(f"{'milliseconds to the first step':36}{'p50':>8}{'p99':>8}{'lists/s':>9}")
    for place, idle in IDLE.items():
        with _store(place, options.folder) as (url, folder), working(url, folder):
            for name, (starts, gap) in {"idle": idle, "arriving": ARRIVING}.items():
                late, lists = anyio.run(_starts, url, starts, gap)
                p50, p99 = late[len(late) // 2], late[len(late) * 99 // 100]
                shown = "" if lists is None else f"{lists:>9.2f}"
                print(f"{place + ', ' + name:36}{1000 * p50:>8.0f}{1000 * p99:>8.0f}{shown}")
                figures |= {
                    f"p50_s_{place}_{name}": round(p50, 3), f"p99_s_{place}_{name}": round(p99, 3),
                    f"lists_per_s_{place}_{name}": lists,
                }  # fmt: skip
    load = round(os.getloadavg()[0], 1)
    print(f"\n{machine()}; load {load}")
    return {**figures, "machine": machine(), "load": load}


async def _starts(url: str, starts: int, gap: float) -> tuple[list[float], float | None]:
    """Seconds to the first step of each, sorted; lists a second, where they are counted.

    Without the one list of each run's folder, by which it is picked up: those that look for work.
    """
    late: list[float] = []
    chance = random.Random(SEED)

    async def one(client: Client) -> None:
        before = time.time()
        handle = await client.start(begin)
        late.append(await handle.result() - before)

    async with connect(url) as client:
        await one(client)  # the worker is there
        late.clear()
        lists, began = lists_made(), time.monotonic()
        async with anyio.create_task_group() as tasks:
            for _ in range(starts):
                tasks.start_soon(one, client)
                await anyio.sleep(gap * chance.uniform(0.5, 1.5))
        took = time.monotonic() - began
    now = lists_made()
    rate = None if lists is None or now is None else round((now - lists - starts) / took, 2)
    return sorted(late), rate


def lists_made() -> int | None:
    """Lists that the server has carried out; None where there is none."""
    url = os.environ.get("STORAGE_EMULATOR_HOST")
    if url is None:
        return None
    with urllib.request.urlopen(f"{url}/_durable/calls") as answer:
        verbs: dict[str, dict[str, int]] = json.load(answer)["verbs"]
    return verbs.get("list", {}).get("requests", 0)


@contextlib.contextmanager
def _store(place: str, folder: str | None) -> Iterator[tuple[str, Path]]:
    with tempfile.TemporaryDirectory(dir=folder) as here, contextlib.ExitStack() as stack:
        if place == "sqlite":
            yield f"sqlite:///{here}/durable.db", Path(here)
            return
        os.environ["STORAGE_EMULATOR_HOST"] = stack.enter_context(server(0))
        try:
            yield f"gs://{BUCKET}/runs", Path(here)
        finally:
            del os.environ["STORAGE_EMULATOR_HOST"]
