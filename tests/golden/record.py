"""Records the golden histories of a version: `python tests/golden/record.py 0.1`."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import anyio

from durable.client import Client, archives
from durable.errors import RunFailed
from durable.runtime.surroundings import Progress
from durable.store import Store
from durable.store.memory import MemoryBackend

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from tests.golden import flows  # noqa: E402  # the project is on the path only now

RUNS: dict[str, tuple[Any, Any]] = {
    "sequence": (flows.sequence, 21),
    "parallel": (flows.parallel, [3, 4, 5]),
    "caught": (flows.caught, "no"),
    "failed": (flows.failed, "never"),
    "open": (flows.open_, 21),
}


async def record(folder: Path) -> None:
    """One file for each run; the record of `open` ends before its last step has an outcome."""
    flows.shut = True
    with anyio.CancelScope() as scope:

        def stop_at_the_gate(_run: str, progress: Progress) -> None:
            if progress.kind == "begin" and progress.name == "golden.gate":
                scope.cancel()

        store = Store(MemoryBackend())
        async with Client(store, observe=stop_at_the_gate) as client:
            for name, (workflow, argument) in RUNS.items():
                with contextlib.suppress(RunFailed):
                    await client.run(workflow.options(id=f"golden-{name}"), argument)
    for name in RUNS:
        content = await archives.export(store, f"golden-{name}")
        # Tracebacks name files: as seen from the project's folder.
        content = content.replace(f"{ROOT}/".encode(), b"")
        await anyio.Path(folder / f"{name}.json").write_bytes(content + b"\n")


if __name__ == "__main__":
    folder = Path(__file__).parent / sys.argv[1]
    folder.mkdir()
    anyio.run(record, folder)
