"""Records the golden histories of a version: `python tests/golden/record.py 0.1`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from durable.client import Client, Handle, archives
from durable.decorators import workflows
from durable.errors import RunCancelled, RunFailed
from durable.runtime.identity import Options
from durable.runtime.surroundings import Progress
from durable.runtime.worker import Worker
from durable.store import Store
from durable.store.memory import MemoryBackend

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from tests.facts import becomes_true  # noqa: E402  # as below
from tests.golden import flows  # noqa: E402  # the project is on the path only now


@dataclass(frozen=True)
class Golden:
    """A run that is recorded, and what is done to it meanwhile.

    Attributes:
        event: the name of one that is sent to it before it begins.
        cancel: it is cancelled once it has come to `golden.halt`.
        ends: the status that it comes to.
        parked: it is recorded where it waits; the event is sent when it goes on.
        behind: a run of this argument keeps what it waits for.
    """

    workflow: Any
    argument: Any
    event: str = ""
    cancel: bool = False
    ends: str = "completed"
    parked: bool = False
    behind: int | None = None


RUNS: dict[str, Golden] = {
    "sequence": Golden(flows.sequence, 21),
    "parallel": Golden(flows.parallel, [3, 4, 5]),
    "caught": Golden(flows.caught, "no"),
    "failed": Golden(flows.failed, "never", ends="failed"),
    "slept": Golden(flows.slept, 3),
    "event": Golden(flows.event, 3, event="golden-go"),
    "selected": Golden(flows.selected, 3),
    "timed": Golden(flows.timed, 3),
    "parent": Golden(flows.parent, 3),
    "undone": Golden(flows.undone, "never", ends="failed"),
    "cancelled": Golden(flows.cancelled, 3, cancel=True, ends="cancelled"),
    "careful": Golden(flows.careful, 3),
    "chances": Golden(flows.chances, 3),
    "parked-sleep": Golden(flows.parked_sleep, 3, parked=True),
    "parked-event": Golden(flows.parked_event, 3, parked=True, event="golden-go"),
    "parked-timeout": Golden(flows.parked_timeout, 3, parked=True),
    "parked-select": Golden(flows.parked_select, 3, parked=True, event="golden-go"),
    "parked-branches": Golden(flows.parked_branches, 3, parked=True, event="golden-go"),
    "parked-child": Golden(flows.parked_child, 3, parked=True),
    "parked-retry": Golden(flows.parked_retry, 3, parked=True),
    "parked-queue": Golden(flows.parked_queue, 3, parked=True, behind=flows.IN_THE_WAY),
    "parked-lock": Golden(flows.parked_lock, 3, parked=True, behind=flows.IN_THE_WAY),
    "grouped": Golden(flows.grouped, 3),
    "open": Golden(flows.open_, 21),  # the last: recording ends with it
}


async def outcome(client: Client, golden: Golden, run: str | None = None) -> object:
    """What the run comes to; a new one, or that of this id."""
    flows.halted = anyio.Event()
    workflow = golden.workflow if run is None else golden.workflow.options(id=run)
    handle = await client.start(workflow, golden.argument)
    if golden.event:
        await handle.send(golden.event, 5, key="golden")
    async with anyio.create_task_group() as tasks:
        if golden.cancel:
            tasks.start_soon(_cancel, handle)
        try:
            return await client.run(workflow.options(id=handle.id), golden.argument)
        except RunFailed as e:
            return type(e.__cause__), str(e.__cause__)
        except RunCancelled:
            return RunCancelled
        finally:
            tasks.cancel_scope.cancel()


async def _cancel(handle: Handle[Any]) -> None:
    await flows.halted.wait()
    await handle.cancel(reason="golden")


async def record(folder: Path) -> None:
    """One file for each run that has none; what was recorded once is never written again."""
    store = Store(MemoryBackend())
    flows.shut = True
    await _park(store)
    await _run(store)
    for name in RUNS:
        await _write(store, f"golden-{name}", folder / f"{name}.json")
    # The child that `parked-child` waits for: the one has to be imported with the other.
    async for run in Client(store).list(workflow="golden.waiting-child"):
        await _write(store, run.id, folder / "children" / "parked-child.json")


async def _run(store: Store) -> None:
    """Those that come to their end; the record of `open` ends before its last step has one."""
    with anyio.CancelScope() as scope:

        def stop_at_the_gate(_run: str, progress: Progress) -> None:
            if progress.kind == "begin" and progress.name == "golden.gate":
                scope.cancel()

        async with Client(store, observe=stop_at_the_gate) as client:
            for name, golden in RUNS.items():
                if not golden.parked:
                    await outcome(client, golden, f"golden-{name}")


async def _park(store: Store) -> None:
    options = Options(queues=("default", "golden"), always_park=True)
    client, worker = Client(store), Worker(store, workflows(), options)
    async with anyio.create_task_group() as tasks:
        await tasks.start(worker.run)
        for name, golden in RUNS.items():
            if golden.behind is not None:
                other = golden.workflow.options(id=f"in the way of {name}")
                await _stands(await client.start(other, golden.behind))
            if golden.parked:
                run = golden.workflow.options(id=f"golden-{name}")
                await _stands(await client.start(run, golden.argument))
        worker.stop()


async def _stands(handle: Handle[Any]) -> None:
    async def stands() -> bool:
        status = await handle.status()
        return status == "parked" or "in line" in status.reason

    await becomes_true(stands)


async def _write(store: Store, run: str, file: Path) -> None:
    if file.exists():  # noqa: ASYNC240  # once
        return
    content = await archives.export(store, run)
    # Tracebacks name files: as seen from the project's folder.
    file.write_bytes(content.replace(f"{ROOT}/".encode(), b"") + b"\n")  # noqa: ASYNC240  # as above


if __name__ == "__main__":
    folder = Path(__file__).parent / sys.argv[1]
    (folder / "children").mkdir(parents=True, exist_ok=True)
    anyio.run(record, folder)
