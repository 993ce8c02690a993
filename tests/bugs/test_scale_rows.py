"""Public bug reports about many runs at once, as trials of ours. A row's id names the report."""

from __future__ import annotations

from collections import Counter
from typing import Any

import anyio
import msgspec
import pytest

from durable.client import Client
from durable.decorators import step, workflow
from durable.protocol import moments, names, records
from durable.protocol.leases import Terms
from durable.protocol.records import History, Marker, Start, Timer
from durable.runtime import markers
from durable.runtime.identity import Options
from durable.store import REMOTE_PACE, Store
from durable.store.memory import Call, Fault, MemoryBackend
from durable.testing.virtual import virtual_bucket, virtual_system
from tests.runtime.clocks import BACKENDS, virtual
from tests.runtime.world import world
from tests.virtual_time import virtual_seconds

pytestmark = pytest.mark.anyio

DAY = 86_400.0
OWN = ("presence/", "workers/", "bells/")  # what a worker writes for itself

bodies: Counter[str] = Counter()


@pytest.fixture(params=BACKENDS)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    bodies.clear()
    return virtual(request.param)


@step(name="scale-row rest")
async def rest(seconds: float) -> None:
    bodies["rest"] += 1
    await virtual_seconds(seconds)


@workflow(name="scale-row resting")
async def resting(seconds: float) -> None:
    await rest(seconds)


# -- B34 -------------------------------------------------------------------------------------------

LISTED = 2_500


class Crowd:
    """Runs in a bucket, by what stands there for them."""

    def __init__(self) -> None:
        self.bucket = virtual_bucket()

    def wait(self, run: str) -> None:
        """It waits for a worker."""
        self._put(names.marker("default", run), self._marker(run))

    def park(self, run: str) -> None:
        """It sleeps for a day."""
        due = self.bucket.now() + DAY
        hint = Timer(
            run=run, instance="i", workflow=resting.name, queue="default", nonce=run,
            path="sleep.1", due=due,
        )  # fmt: skip
        self._put(names.timer(moments.stamp(due), run, "i", "sleep.1"), hint)

    def finish(self, run: str) -> None:
        """Its outcome stands in the history, and then its marker goes."""
        ended = self.bucket.now()
        entry = History(
            run=run, instance="i", workflow=resting.name, status="completed",
            started=ended - 1, ended=ended, nonce=run,
        )  # fmt: skip
        self._put(names.history(moments.stamp(ended), run), entry)
        marker = self.bucket.read(names.marker("default", run))
        if marker is not None:
            self.bucket.delete(marker.name, marker.generation)

    def _marker(self, run: str) -> Marker:
        start = Start(workflow=resting.name, input=msgspec.Raw(b"{}"), instance="i", nonce=run)
        return markers.for_start(run, start)

    def _put(self, name: str, record: msgspec.Struct) -> None:
        self.bucket.create(name, records.encode(record), {"nonce": "n", "instance": "i"}, True)


@pytest.mark.parametrize("size", [1, 2, 1000])
async def test_b34_every_run_is_listed_once_whatever_the_pages(size: int) -> None:
    """2,500 runs, and before each page somebody starts one and somebody finishes one.

    B34, fsspec/gcsfs PR #591.
    """
    crowd = Crowd()
    throughout = {f"stays-{number}" for number in range(LISTED)}
    for number, run in enumerate(sorted(throughout)):
        (crowd.wait, crowd.park, crowd.finish)[number % 3](run)
    ending = [run for number, run in enumerate(sorted(throughout)) if number % 3 == 0]

    def meanwhile(call: Call) -> Fault | None:
        if call.verb == "list":
            crowd.wait(f"new-{call.nth}")
            if call.nth % 3 == 0:
                crowd.finish(f"new-{call.nth - 1}")
            if ending:
                crowd.finish(ending.pop())
        return None

    backend = MemoryBackend(crowd.bucket, faults=meanwhile)
    backend.page_size = size
    async with Client(Store(backend, system=virtual_system())) as client:
        seen = Counter([summary.id async for summary in client.list()])

    assert {run for run in seen if run.startswith("stays-")} == throughout
    assert set(seen.values()) == {1}
    assert crowd.bucket.calls["list"] >= LISTED / size


# -- B38 -------------------------------------------------------------------------------------------


@pytest.mark.requires("trio")
async def test_b38_a_thousand_runs_rewrite_one_object(anyio_backend: Any) -> None:
    """A day of a thousand live runs in one process: one write every 10 s, however many there are.

    B38, 2i2c-org/infrastructure#3696.
    """
    if anyio_backend[0] != "trio":
        pytest.skip("a day has more turns than the tests' asyncio loop allows a program")
    bucket = virtual_bucket()
    backend = MemoryBackend(bucket)
    backend.pace = msgspec.structs.replace(REMOTE_PACE, bell=600.0)  # what it asks is not counted
    options = Options(
        queues=(), renew_in_thread=False, concurrency=1000, terms=Terms.of(30.0), schedules=False
    )
    store = Store(backend, system=virtual_system())
    async with Client(store, options=options) as client, anyio.create_task_group() as tasks:
        for _ in range(1000):
            tasks.start_soon(client.run, resting, 2 * DAY)
        while bodies["rest"] < 1000:
            await virtual_seconds(1)
        before = len(bucket.log)
        await virtual_seconds(DAY)
        asked = bucket.log[before:]
        tasks.cancel_scope.cancel()

    written = Counter(name for verb, name in asked if verb not in {"read", "list"})
    [(lease, writes)] = written.items()
    assert lease.startswith(names.WORKERS)
    assert abs(writes - DAY / 10) <= 2
    assert "list" not in {verb for verb, _ in asked}


async def test_b38_ten_thousand_sleeping_runs_cost_nothing() -> None:
    """Beside them a worker writes for itself alone, and lists what it would list without them.

    B38, 2i2c-org/infrastructure#3696.
    """
    crowd = Crowd()
    for number in range(10_000):
        crowd.park(f"r{number}")
    async with world() as w:
        w.bucket = crowd.bucket
        await w.process()
        await virtual_seconds(600)
        before = len(w.bucket.log)
        await virtual_seconds(3600)
        asked = w.bucket.log[before:]

    written = [name for verb, name in asked if verb not in {"read", "list"}]
    assert not [name for name in written if not name.startswith(OWN)]
    assert sum(verb == "list" for verb, _ in asked) <= 5 * 60
