"""Starts with a debounce key under any order of starts, takes, wakes and deaths at any store call.

The code is the real one, on a memory store whose clock stands until a rule moves it. What a process
does can be cut off after any of its calls, as by a death; then another may go on with it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from durable.errors import StoreUnavailable
from durable.protocol import moments, names, records
from durable.protocol.queues import Queue
from durable.protocol.records import Cancel, Result, Start
from durable.runtime import keys, markers, timers
from durable.runtime.admission import Admission, Admitted, Turned
from durable.runtime.closing import Parked
from durable.runtime.facts import load
from durable.runtime.lines import Lines
from durable.store import Store
from durable.store.memory import Bucket, Call, Fault, MemoryBackend
from durable.system import System
from durable.testing.virtual import EPOCH

CUTS = st.one_of(*[st.none()] * 3, st.integers(0, 20))  # most live: else little is reached
INDEX = st.integers(0, 5)
QUIET = Queue("q", debounce="10s", debounce_max="25s")


class Starts(RuleBasedStateMachine):
    """The n-th start asks for n; `got` has the run that each start which returned was given."""

    @initialize()
    def begin(self) -> None:
        self.clock = EPOCH
        self.bucket = Bucket(now=lambda: self.clock)
        self.started = 0
        self.got: dict[int, str] = {}
        self.done: dict[str, list[int]] = {}  # what each run was asked for when its code began
        self.cancelled: set[str] = set()

    def do(self, work: Callable[[Store], Awaitable[object]], cut: int | None = None) -> bool:
        """As a process of its own; False: it died after so many calls."""
        made = [0]

        def faults(_: Call) -> Fault | None:
            made[0] += 1
            return Fault("unsent") if cut is not None and made[0] == cut + 1 else None

        async def main() -> None:
            system = System(boot=lambda: self.clock, wall=lambda: self.clock)
            backend = MemoryBackend(self.bucket, faults=faults)
            await work(Store(backend, patience=0, system=system))

        try:
            anyio.run(main)
        except StoreUnavailable:
            return False
        except BaseExceptionGroup as group:
            if group.split(StoreUnavailable)[1] is not None:
                raise
            return False
        return True

    # -- what happens -----------------------------------------------------------------------------

    @rule(cut=CUTS)
    def start(self, cut: int | None = None) -> None:
        self.started += 1
        number = self.started

        async def work(store: Store) -> None:
            start = Start(
                workflow="w", input=msgspec.Raw(str(number).encode()), instance=f"{number:08x}",
                nonce=store.system.token(), queue="q", created=self.clock,
                debounce=QUIET.debounced("k", self.clock),
            )  # fmt: skip
            begun = await keys.start_with(store, f"r{number}", start)
            self.got[number] = begun.run

        self.do(work, cut)
        assert self.got.get(number) not in self.cancelled

    @rule(seconds=st.sampled_from([4.0, 11.0, 26.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock += seconds

    @rule(index=INDEX, cut=CUTS)
    def take(self, index: int, cut: int | None = None) -> None:
        """A worker takes a marker, and does what it finds."""
        if waiting := self.marked():
            self.do(lambda store: self.carry(store, waiting[index % len(waiting)]), cut)

    async def carry(self, store: Store, run: str) -> None:
        found = await markers.read(store, "q", run)
        facts = await load(store, run)
        if facts is None or found is None:
            assert found is not None
            request = found[1].request
            assert request is not None
            await store.create(names.start(run), records.encode(request), nonce=request.nonce)
            return
        if facts.result is None:
            answer = await Admission(store, run, facts, Lines(store, ("q",), {})).ask()
            if isinstance(answer, Parked):
                await timers.put(store, found[1], facts.start.instance, answer)
                await store.delete(found[0].name, found[0].generation)
                return
            assert isinstance(answer, Admitted | Turned)
            if isinstance(answer, Admitted):
                self.done.setdefault(run, []).append(int(bytes(facts.start.input)))
            result = Result("completed", f"result {run}", 1, 0.0)
            name = names.result(run, facts.start.instance)
            await store.create(name, records.encode(result), nonce=result.nonce)
        await keys.end(store, run, facts.start)
        await store.delete(found[0].name, found[0].generation)

    @rule(cut=CUTS)
    def promote(self, cut: int | None = None) -> None:
        """A promoter wakes what is due; the hints of what is over go with it."""

        async def work(store: Store) -> None:
            async for stored in store.list(names.TIMERS):
                if names.timer_due(stored.name) <= moments.stamp(self.clock):
                    await timers.promote(store, stored)
                    await store.delete(stored.name, stored.generation)

        self.do(work, cut)

    @rule(index=INDEX)
    def cancel(self, index: int) -> None:
        """Somebody cancels a run that collects."""
        runs = [r for r in self.runs() if r not in self.done]
        if runs and len(self.cancelled) < 2:
            run = runs[index % len(runs)]
            self.cancelled.add(run)

            async def work(store: Store) -> None:
                facts = await load(store, run)
                assert facts is not None
                asked = records.encode(Cancel("c", self.clock))
                await store.create(names.cancel(run, facts.start.instance), asked, nonce="c")
                await markers.wake(store, run, facts.start, nonce=store.system.token)

            self.do(work)

    # -- what must hold ---------------------------------------------------------------------------

    def runs(self) -> list[str]:
        found = [item.name for item in self.bucket.list("runs/", None).items]
        return [name.split("/")[1] for name in found if name.endswith("/start")]

    def marked(self) -> list[str]:
        found = [names.marker_run(item.name) for item in self.bucket.list("live/", None).items]
        return [run for run in found if run is not None]

    @invariant()
    def a_run_is_asked_for_one_thing(self) -> None:
        assert all(len(set(asked)) == 1 for asked in getattr(self, "done", {}).values())

    def teardown(self) -> None:
        """Once nobody dies any more: what a start was given does that, or what came later."""
        if not hasattr(self, "started"):
            return
        for _ in range(6):
            self.time_passes(30.0)
            self.promote()
            for run in self.marked():
                self.do(lambda store, run=run: self.carry(store, run))
        self.a_run_is_asked_for_one_thing()
        for number, run in self.got.items():
            assert run in self.cancelled or self.done[run][0] >= number
        over = set(self.done) | self.cancelled
        assert set(self.runs()) <= over
        left = [item.name for item in self.bucket.list("", None).items]
        assert not [n for n in left if n.startswith(("live/", "timers/"))]


TestStarts = Starts.TestCase
TestStarts.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
