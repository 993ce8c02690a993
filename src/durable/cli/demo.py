"""`demo`: two real workers on a store of its own; one is killed, the other finishes its run."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import anyio
import msgspec

from durable.cli import demo_flow, exits, output
from durable.client import Handle, connect, reading
from durable.errors import DurableError
from durable.protocol import names
from durable.runtime.sweeper import decode_lease
from durable.store import Store

T = TypeVar("T")

RUN = "demo-1"
ITEMS = 6
KILL_AFTER = 2  # recorded steps
PATIENCE = 28.0  # seconds for all of it
POLL = 0.05  # seconds

Say = Callable[[str], None]


class Seen(msgspec.Struct, kw_only=True):
    """What the demo saw."""

    workers: Sequence[int]
    killed: int
    epoch_before: int
    epoch_after: int
    why: str
    recorded_before: int
    result: list[str]
    objects: list[str]


def demo(arguments: argparse.Namespace) -> int:
    """Start, kill -9, take over, and show what the store holds."""

    def say(text: str) -> None:
        if not arguments.json:
            print(text, flush=True)

    with tempfile.TemporaryDirectory(prefix="durable-demo-") as folder:
        url = f"sqlite:///{folder}/demo.db"
        with _two_workers(Path(folder), url) as pids:
            say(f"two workers: pids {pids[0]} and {pids[1]}")
            seen = anyio.run(_watch, url, pids, say)
    if arguments.json:
        output.document(seen)
    say("demo: ok")
    return exits.DONE


@contextlib.contextmanager
def _two_workers(folder: Path, url: str) -> Iterator[list[int]]:
    target = f"{demo_flow.__name__}:{demo_flow.packing.__name__}"
    command = [sys.executable, "-m", "durable.cli", "--store", url, "worker", target]
    processes = []
    try:
        for number in (1, 2):
            with (folder / f"worker-{number}.log").open("wb") as log:
                processes.append(subprocess.Popen(command, stderr=log, cwd=folder))  # noqa: S603  # our own words
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=5)
            process.kill()
            process.wait()


async def _watch(url: str, pids: list[int], say: Say) -> Seen:
    with anyio.move_on_after(PATIENCE):
        async with connect(url) as client:
            handle = await client.start(demo_flow.packing.options(id=RUN), ITEMS)
            say(f"run {RUN}: {ITEMS} steps, one after the other")
            return await _kill_and_see(client.store, handle, pids, say)
    raise DurableError(f"the demo did not end within {PATIENCE:g} s", run=RUN)


async def _kill_and_see(store: Store, handle: Handle[list[str]], pids: list[int], say: Say) -> Seen:
    async def enough() -> int | None:
        recorded = len(await handle.steps())
        return recorded if recorded >= KILL_AFTER else None

    async def holder() -> int | None:
        marker = await store.read(names.marker(handle.queue, RUN))
        held_by = marker.meta.get("holder", "") if marker is not None else ""
        lease = await store.read(names.worker(held_by)) if held_by else None
        found = decode_lease(lease) if lease is not None else None
        return found.pid if found is not None else None

    recorded = await _until(enough)
    victim = await _until(holder)
    if victim not in pids:
        raise DurableError(f"the run is held by process {victim}, which is not of this demo")
    before, _ = await _epoch(store)
    os.kill(victim, signal.SIGKILL)
    say(f"{recorded} steps recorded in epoch {before}; kill -9 {victim}, which holds the run")
    result = await handle.result()
    after, why = await _epoch(store)
    survivor = next(pid for pid in pids if pid != victim)
    say(f"pid {survivor} took the run over in epoch {after} ({why}) and finished it: {result}")
    objects = [stored.name async for stored in store.list("")]
    say("the store now holds:")
    for name in objects:
        say(f"  {name}")
    return Seen(
        workers=pids, killed=victim, epoch_before=before, epoch_after=after, why=why,
        recorded_before=recorded, result=result, objects=objects,
    )  # fmt: skip


async def _epoch(store: Store) -> tuple[int, str]:
    """The run's present epoch, and why it began; the first has no claim."""
    epochs = (await reading.load(store, RUN)).epochs
    last = max(epochs, key=lambda e: e.epoch, default=None)
    return (1, "start") if last is None else (last.epoch, last.why)


async def _until(look: Callable[[], Awaitable[T | None]]) -> T:
    while (found := await look()) is None:  # noqa: ASYNC110  # other processes set no event
        await anyio.sleep(POLL)
    return found
