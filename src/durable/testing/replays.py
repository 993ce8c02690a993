"""Real histories as tests: code that would strand a run is found before it is deployed."""

from __future__ import annotations

import glob
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import anyio

from durable.client import archives
from durable.client.apart import compare_apart
from durable.client.replaying import subject
from durable.decorators import WorkflowFunction
from durable.errors import DurableError, UsageError


def assert_replays(
    files: str | Path | Iterable[str | Path], workflow: WorkflowFunction[Any, Any] | None = None
) -> int:
    """Today's code goes on with every run in these files; no step's body is executed.

    Args:
        files: what `durable export` wrote: a file, a pattern (`"tests/histories/*.json"`), or
            several of them.
        workflow: the code; default: what is registered under the run's workflow name.

    Returns:
        How many runs were replayed.

    Raises:
        AssertionError: the code parts from a record; it says for each file where.
        UsageError: there is no such file, or it holds no exported run.
    """
    found = [path for given in _several(files) for path in _matching(given)]
    said = {str(path): anyio.run(_difference, path, workflow) for path in found}
    differing = [f"{path}: {difference}" for path, difference in said.items() if difference]
    if differing:
        raise AssertionError(
            f"{len(differing)} of {len(found)} recorded runs do not fit this code:\n"
            + "\n".join(differing)
        )
    return len(found)


def _several(files: str | Path | Iterable[str | Path]) -> list[str | Path]:
    return [files] if isinstance(files, str | Path) else list(files)


def _matching(given: str | Path) -> list[Path]:
    found = [Path(path) for path in sorted(glob.glob(str(given), recursive=True))]
    if not found:
        raise UsageError(
            f"no file matches {str(given)!r}", hint="`durable export RUN FILE` writes one"
        )
    return found


async def _difference(path: Path, workflow: WorkflowFunction[Any, Any] | None) -> str:
    content = await anyio.Path(path).read_bytes()
    try:
        archive = archives.read(content)
    except UsageError as e:
        raise UsageError(f"{path}: {e.message}", hint=e.hint) from e
    store = await archives.unpacked(archive)
    try:
        facts, definition = await subject(store, archive.run, workflow)
        done = await compare_apart(store, archive.run, facts, definition)
    except DurableError as e:
        return e.message
    if not done.difference:
        return ""
    return f"{done.difference}\n    recorded: {done.recorded}\n    asked now: {done.asked}"
