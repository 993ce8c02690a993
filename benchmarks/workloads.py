"""Typical workloads, in dollars: durable's counted calls beside the list prices of others."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import anyio

from benchmarks.billing import (
    SETTLED,
    STEPS,
    BilledBackend,
    Count,
    client_of,
    resting,
    worker_of,
)
from durable import wait_event, workflow
from durable.decorators import workflows
from durable.runtime.identity import Options
from durable.runtime.worker import Worker
from durable.testing.virtual import virtual_system

# List prices, United States, without free tiers, minimum fees, storage, workers and support.
TEMPORAL_PER_MILLION = 50.0  # actions; its smallest plan adds a fee a month
STEP_FUNCTIONS_PER_MILLION = 25.0  # state transitions, Standard workflows
CLOUD_SQL_PER_MONTH = 2 * 0.0413 * 730 + 7.5 * 0.007 * 730 + 10 * 0.17
HOURS_PER_MONTH = 730

SOURCES = f"""\
Temporal Cloud ${TEMPORAL_PER_MILLION:.2f} a million actions (temporal.io/pricing, as quoted in \
July 2026); a run, a step, a timer and a signal are an action each.
AWS Step Functions ${STEP_FUNCTIONS_PER_MILLION:.2f} a million transitions, Standard \
(aws.amazon.com/step-functions/pricing); a step, the start and the end are one each.
Cloud SQL for PostgreSQL, 2 vCPU, 7.5 GB, 10 GB SSD, not highly available: \
${CLOUD_SQL_PER_MONTH:.2f} a month (cloud.google.com/sql/pricing, as quoted in May 2026)."""


class Workload(NamedTuple):
    """What is priced.

    Attributes:
        calls: durable's; `actions` and `transitions` are those of the others.
        months: how long it takes of a database that is paid by the month.
    """

    name: str
    calls: Count
    actions: int
    transitions: int
    months: float = 0.0

    @property
    def dollars(self) -> dict[str, float]:
        """By who would be paid."""
        return {
            "durable": self.calls.dollars_per_million / 1e6,
            "temporal": self.actions * TEMPORAL_PER_MILLION / 1e6,
            "step_functions": self.transitions * STEP_FUNCTIONS_PER_MILLION / 1e6,
            "cloud_sql": self.months * CLOUD_SQL_PER_MONTH,
        }


@workflow(name="workloads.approval")
async def approval() -> object:
    return await wait_event("approved", timeout="60d")


async def all_of_them(server: dict[str, Count], clock: dict[str, Count]) -> list[Workload]:
    """The workloads; what is counted already is taken from those rows."""
    parts = ("start and run in one process", "finishing")
    step = server["a step that succeeds"]
    ten = _sum([*(server[part] for part in parts), *[step] * STEPS])
    idle = clock["an idle worker, per minute"].each(1 / (60 * HOURS_PER_MONTH))
    return [
        Workload("a run of 10 steps in one process", ten, 1 + STEPS, 2 + STEPS),
        Workload("an approval after a month", await approved(), 3, 3),
        Workload("an idle worker for a month", idle, 0, 0, 1.0),
        Workload(
            "1,000 live runs on 20 workers for a day", await _fleet(), 2000, 3000,
            24 / HOURS_PER_MONTH,
        ),
    ]  # fmt: skip


def _sum(counts: list[Count]) -> Count:
    return Count(sum(map(Counter, counts), Counter()))


async def approved() -> Count:
    """All calls about the run; what workers ask without it is the idle worker's row."""
    backend = BilledBackend()
    served = {approval.name: approval.definition}
    async with client_of(backend) as client:
        handle = await client.start(approval.options(id="approval"))
        async with worker_of(client.store, served=served):
            await anyio.sleep(SETTLED)
        await anyio.sleep(30 * 86400.0)
        async with worker_of(client.store, served=served):
            await handle.send("approved", "yes")
            await anyio.sleep(SETTLED)
            assert str(await handle.status()) == "completed"
        calls = [call for call in backend.log if "approval" in call.name]
    return Count.of(calls)


async def _fleet(workers: int = 20, runs: int = 1000) -> Count:
    """A day, from ten minutes of it; with jitter, since twenty would go in step without."""
    backend = BilledBackend(virtual_system())
    async with client_of(backend) as client, anyio.create_task_group() as tasks:
        for _ in range(workers):
            worker = Worker(
                client.store, workflows(),
                Options(renew_in_thread=False, grace=0, concurrency=runs // workers),
            )  # fmt: skip
            tasks.start_soon(worker.run)
        for _ in range(runs):
            await client.start(resting, 30 * 86400.0)
        await anyio.sleep(SETTLED)
        before = len(backend.log)
        await anyio.sleep(600.0)
        count = Count.of(backend.log[before:])
        tasks.cancel_scope.cancel()
    return count.each(1 / 144)
