"""What released versions have recorded replays and resumes under today's code."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from durable.client import Client, archives
from durable.decorators import workflows
from durable.runtime.worker import Worker
from durable.testing import assert_replays
from tests.golden import flows
from tests.golden.record import RUNS, outcome

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("*/*.json"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_it_replays(file: Path) -> None:
    """No call of today's code parts from the record."""
    assert assert_replays(file) == 1


@pytest.mark.anyio
@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
async def test_it_ends_as_a_fresh_run_does(file: Path) -> None:
    """An outcome reads as ever; a run that is not over goes on where its record ends."""
    archive = archives.read(await anyio.Path(file).read_bytes())
    store = await archives.unpacked(archive)
    golden = RUNS[file.stem]
    others = anyio.Path(file.parent / "children" / file.name)
    children = [archives.read(await others.read_bytes())] if await others.exists() else []
    for child in children:
        await archives.write(store, child)
    flows.shut = False
    async with Client(store) as client:
        for one in (archive, *children):
            if one.result is None:
                await client.retry(one.run)
        if children:  # a client carries the children alone that its own runs start
            await Worker(store, workflows()).run(until_idle=True)

        old = await outcome(client, golden, archive.run)
        fresh = await outcome(client, golden)

        over = [run async for run in client.list() if run.id == archive.run]

    assert old == fresh
    assert [run.status for run in over] == [golden.ends]


def test_each_golden_run_is_recorded() -> None:
    """None of them is forgotten when a version is recorded."""
    assert {file.stem for file in FILES} == set(RUNS)
