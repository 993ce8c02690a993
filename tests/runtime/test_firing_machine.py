"""Schedules under any order of looks, ends, pauses and deaths at any store call.

Deciders and clients are the real ones, on a memory store whose time is set by hand. What a
process does can be cut off after any of its calls, as by a death.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from durable.client.schedules import Schedules
from durable.decorators import workflow
from durable.errors import StoreUnavailable
from durable.protocol import names, records
from durable.protocol.records import Result, ScheduleRecord
from durable.protocol.schedules import every
from durable.runtime import firing
from durable.runtime.facts import read_start
from durable.runtime.scheduler import Scheduler
from durable.store import Store
from durable.store.memory import Bucket, Call, Fault, MemoryBackend

BEGIN = 1_700_000_000.0
PERIOD = 600.0
CUTS = st.one_of(st.none(), st.integers(0, 15))


@workflow(name="firing machine job")
async def job() -> None: ...


class Firing(RuleBasedStateMachine):
    """One schedule; each look is a worker of its own."""

    @initialize(
        catch_up=st.sampled_from(["skip", "latest", "all", 2]),
        overlap=st.sampled_from(["skip", "queue", "cancel-old", "allow"]),
    )
    def begin(self, catch_up: Any, overlap: Any) -> None:
        if catch_up in {"all", 2} and overlap in {"skip", "cancel-old"}:
            overlap = "queue"
        self.now = BEGIN
        self.bucket = Bucket(now=lambda: self.now)
        self.schedule = every(PERIOD, catch_up=catch_up, overlap=overlap)
        self.overlaps = overlap == "allow"
        self.do(lambda store: _client(store).create("s", self.schedule, job))

    def do(self, work: Callable[[Store], Awaitable[object]], cut: int | None = None) -> None:
        """As a process of its own, which dies after so many calls."""
        made = [0]

        def faults(_: Call) -> Fault | None:
            made[0] += 1
            return Fault("unsent") if cut is not None and made[0] > cut else None

        async def main() -> None:
            try:
                await work(Store(MemoryBackend(self.bucket, faults=faults), patience=0))
            except* StoreUnavailable:
                assert cut is not None

        anyio.run(main)

    # -- what happens -----------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1.0, 61.0, PERIOD, 5 * PERIOD]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(cut=CUTS)
    def looks(self, cut: int | None = None) -> None:
        """A worker starts, learns of the schedule and attends to what is due."""
        known = {job.name: job.definition}
        self.do(
            lambda store: Scheduler(store, known, version="v", on_start=lambda: None).look(), cut
        )

    @rule(on=st.booleans(), cut=CUTS)
    def pauses(self, on: bool, cut: int | None = None) -> None:
        self.do(lambda store: getattr(_client(store), "pause" if on else "resume")("s"), cut)

    @rule(index=st.integers(0, 5))
    def ends(self, index: int) -> None:
        """A run comes to its end."""
        open_runs = [run for run in self.runs() if not self.is_over(run)]
        if open_runs:
            run = open_runs[index % len(open_runs)]
            result = records.encode(Result("completed", f"result {run}", 1, self.now))
            name = names.result(run, self.instance(run))
            self.do(lambda store: store.create(name, result, nonce=run))

    # -- what there is ----------------------------------------------------------------------------

    def register(self) -> ScheduleRecord:
        stored = self.bucket.read(names.schedule("s"))
        assert stored is not None
        return firing.decode(stored)

    def runs(self) -> list[str]:
        """The ids of all runs, in the order of their ticks."""
        found = self.bucket.list("runs/", None).items
        return [f"s@{n.name.split('%40')[1].split('/')[0].replace('%3A', ':')}"
                for n in found if n.name.endswith("/start")]  # fmt: skip

    def instance(self, run: str) -> str:
        found: list[str] = []

        async def read(store: Store) -> None:
            start = await read_start(store, run)
            assert start is not None
            found.append(start.instance)

        self.do(read)
        return found[0]

    def is_over(self, run: str) -> bool:
        return self.bucket.read(names.result(run, self.instance(run))) is not None

    # -- what must hold ---------------------------------------------------------------------------

    @invariant()
    def no_run_is_undecided(self) -> None:
        """Each run is of a tick that was decided on before."""
        if hasattr(self, "bucket"):
            assert len(self.runs()) <= self.register().fired

    @invariant()
    def one_goes_on_at_a_time(self) -> None:
        """But where the policy says otherwise."""
        if hasattr(self, "bucket") and not self.overlaps:
            going = [run for run in self.runs() if not self.is_over(run)]
            cancelled = [run for run in going if self.is_cancelled(run)]
            assert len(going) - len(cancelled) <= 1

    def is_cancelled(self, run: str) -> bool:
        return self.bucket.read(names.cancel(run, self.instance(run))) is not None

    def teardown(self) -> None:
        """Once nobody dies any more, each tick that was decided to start has its run."""
        if not hasattr(self, "bucket"):
            return
        self.looks()
        register = self.register()
        assert len(self.runs()) == register.fired
        decided = register.fired + register.missed + register.skipped + len(register.queued)
        assert decided <= (self.now - BEGIN) // PERIOD + 1


def _client(store: Store) -> Schedules:
    return Schedules(store, lambda: "v")


TestFiring = Firing.TestCase
TestFiring.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
