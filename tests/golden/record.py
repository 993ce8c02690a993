"""Records the golden histories of a version: `python tests/golden/record.py 0.1`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from durable.client import Client, Handle, archives
from durable.errors import RunCancelled, RunFailed
from durable.runtime.surroundings import Progress
from durable.store import Store
from durable.store.memory import MemoryBackend

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from tests.golden import flows  # noqa: E402  # the project is on the path only now


@dataclass(frozen=True)
class Golden:
    """A run that is recorded, and what is done to it meanwhile.

    Attributes:
        event: the name of one that is sent to it before it begins.
        cancel: it is cancelled once it has come to `golden.halt`.
        ends: the status that it comes to.
    """

    workflow: Any
    argument: Any
    event: str = ""
    cancel: bool = False
    ends: str = "completed"


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
    """One file for each run; the record of `open` ends before its last step has an outcome."""
    flows.shut = True
    with anyio.CancelScope() as scope:

        def stop_at_the_gate(_run: str, progress: Progress) -> None:
            if progress.kind == "begin" and progress.name == "golden.gate":
                scope.cancel()

        store = Store(MemoryBackend())
        async with Client(store, observe=stop_at_the_gate) as client:
            for name, golden in RUNS.items():
                await outcome(client, golden, f"golden-{name}")
    for name in RUNS:
        content = await archives.export(store, f"golden-{name}")
        # Tracebacks name files: as seen from the project's folder.
        content = content.replace(f"{ROOT}/".encode(), b"")
        await anyio.Path(folder / f"{name}.json").write_bytes(content + b"\n")


if __name__ == "__main__":
    folder = Path(__file__).parent / sys.argv[1]
    folder.mkdir()
    anyio.run(record, folder)
