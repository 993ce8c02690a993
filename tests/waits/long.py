"""Long waits in a world whose workers are only there when something happens."""

from __future__ import annotations

from typing import Any

from durable.protocol import names
from tests.runtime.world import Process, World
from tests.virtual_time import virtual_seconds

DAY = 86400.0


async def parked(w: World, run: str = "r") -> list[str]:
    """Wait until the run has no marker; the names of the timer hints."""
    await w.until(lambda: names.marker("default", run) not in w.there())
    return await w.names(names.TIMERS)


async def stop(process: Process) -> None:
    """The worker drains and leaves."""
    process.worker.stop()
    await process.gone.wait()


async def pass_time(w: World, process: Process, seconds: float, **options: Any) -> Process:
    """That much time passes without a worker, whose polls would fill it; then one comes."""
    await stop(process)
    await virtual_seconds(seconds)
    return await w.process(**options)


def concerns(name: str, run: str = "r") -> bool:
    """Whether an object of that name is of the run."""
    return f"/{run}/" in name or name.endswith(f"-{run}")


def verbs(w: World) -> list[str]:
    """What the world's processes wrote for runs, as `create waits`, `replace live` and so on."""
    return [
        f"{verb} {kind}"
        for verb, name in w.bucket.log
        if verb in {"create", "replace"} and (kind := _kind(name)) not in {"workers", "presence"}
    ]


def _kind(name: str) -> str:
    parts = name.split("/")
    if parts[0] != "runs":
        return parts[0]
    return parts[2] if parts[2] == "start" else parts[3]
