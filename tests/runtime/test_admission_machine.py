"""Locks and slots under any order of starts, takes, parks, ends and deaths at any store call.

The code that asks for a lock or a slot is the real one, on a memory store. What a process does can
be cut off after any of its calls, as by a death; then another may go on with the same run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from durable.decorators import workflow
from durable.errors import StoreUnavailable
from durable.protocol import names, records
from durable.protocol.queues import Queue
from durable.protocol.records import LockRequest, Result, Start, Wait
from durable.runtime import lines, markers, singletons, starting
from durable.runtime.admission import Admission, Admitted, Turned, lock_wait
from durable.runtime.facts import load
from durable.runtime.lines import Lines
from durable.store import Store
from durable.store.memory import Bucket, Call, Fault, MemoryBackend

CUTS = st.one_of(st.none(), st.integers(0, 25))
INDEX = st.integers(0, 5)


@workflow(name="machine job")
async def job() -> None: ...


class Runs(RuleBasedStateMachine):
    """Runs of one kind; `limit` of them may go on at once."""

    limit = 1

    @initialize()
    def begin(self) -> None:
        self.bucket = Bucket()
        self.starts: dict[str, Start] = {}
        self.inside: set[str] = set()
        self.parked: set[str] = set()
        self.set_up()

    def set_up(self) -> None:
        """What must be in the store before."""

    def request(self, number: int) -> dict[str, Any]:
        raise NotImplementedError

    def do(self, work: Callable[[Store], Awaitable[object]], cut: int | None = None) -> bool:
        """As a process of its own; False: it died after so many calls."""
        made = [0]

        def faults(_: Call) -> Fault | None:
            made[0] += 1
            return Fault("unsent") if cut is not None and made[0] > cut else None

        async def main() -> None:
            await work(Store(MemoryBackend(self.bucket, faults=faults), patience=0))

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

    @rule()
    def start(self) -> None:
        if len(self.starts) < 6:
            number = len(self.starts)
            run = f"r{number}"
            self.starts[run] = Start(
                workflow=job.name, input=msgspec.Raw(b'{"args":[],"kwargs":{}}'),
                instance=f"{number:08x}", nonce=run, created=1000.0 + number,
                **self.request(number),
            )  # fmt: skip
            self.do(lambda store: starting.start(store, run, self.starts[run]))

    @rule(index=INDEX, cut=CUTS)
    def take(self, index: int, cut: int | None = None) -> None:
        """A worker takes a marker, and does what it finds."""
        waiting = [r for r in self.starts if r not in self.inside and self.has_marker(r)]
        if waiting:
            run = waiting[index % len(waiting)]
            self.do(lambda store: self.carry(store, run), cut)

    async def carry(self, store: Store, run: str) -> None:
        facts = await load(store, run)
        assert facts is not None
        if facts.result is not None:
            return await self.owe(store, run)
        queue = facts.start.queue
        answer = await Admission(store, run, facts, Lines(store, (queue,), {})).ask()
        if isinstance(answer, Admitted):
            self.inside.add(run)
            return None
        if isinstance(answer, Turned):
            return await self.end(store, run)
        found = await markers.read(store, queue, run)
        assert found is not None
        wait = Wait("slot", "slot", queue, 0, "w", 0.0)
        name = names.wait(run, facts.start.instance, "slot")
        await store.create(name, records.encode(wait), nonce="w", read_back=False)
        await store.delete(found[0].name, found[0].generation)
        return None

    @rule(index=INDEX, cut=CUTS)
    def finish(self, index: int, cut: int | None = None) -> None:
        """A run that goes on comes to its end; its worker may die on the way."""
        if self.inside:
            run = sorted(self.inside)[index % len(self.inside)]
            self.inside.discard(run)  # its code is over, or died with its worker
            self.do(lambda store: self.end(store, run), cut)

    async def end(self, store: Store, run: str) -> None:
        instance = self.starts[run].instance
        result = Result("completed", f"result {run}", 1, 0.0)
        body = records.encode(result)
        await store.create(names.result(run, instance), body, nonce=result.nonce)
        await self.owe(store, run)

    async def owe(self, store: Store, run: str) -> None:
        """What an ended run owes; done again by whoever takes its marker."""
        facts, start = await load(store, run), self.starts[run]
        await self.give_up(store, run)
        await singletons.end(store, run, start, lock_wait(facts) if facts else None)
        found = await markers.read(store, start.queue, run)
        if found is not None:
            await store.delete(found[0].name, found[0].generation)

    async def give_up(self, store: Store, run: str) -> None:
        start = self.starts[run]
        slots = await Lines(store, (start.queue,), {}).slots(start.queue, asked=start.limited)
        held = None if slots is None else (await slots.all()).held(run, start.instance)
        if slots is not None and held is not None:
            await slots.give_up(held, by=run)

    @rule(cut=CUTS)
    def dispatch(self, cut: int | None = None) -> None:
        async def work(store: Store) -> None:
            slots = await Lines(store, ("q",), {}).slots("q", asked=True)
            if slots is not None:
                await slots.dispatch(tidy=True)

        self.do(work, cut)

    @rule(index=INDEX)
    def starts_again(self, index: int) -> None:
        """A second start, or a late wake: the marker of any run that is not over."""
        if self.starts:
            run = sorted(self.starts)[index % len(self.starts)]
            wake = markers.wake
            self.do(lambda s: wake(s, run, self.starts[run], nonce=s.system.token))

    # -- what must hold ---------------------------------------------------------------------------

    def has_marker(self, run: str) -> bool:
        return self.bucket.read(names.marker(self.starts[run].queue, run)) is not None

    def left(self) -> list[str]:
        kinds = ("/slots/", "/pending/", "/wait/")
        names_of = [item.name for item in self.bucket.list("", None).items]
        return [n for n in names_of if n.startswith("live/") or any(k in n for k in kinds)]

    @invariant()
    def never_more_than_the_limit(self) -> None:
        assert len(getattr(self, "inside", ())) <= self.limit

    def teardown(self) -> None:
        """Once nobody dies any more, every run ends, and nothing is left behind."""
        if not hasattr(self, "starts"):
            return
        for _ in range(4 * len(self.starts) + 4):
            self.dispatch()
            for run in self.starts:
                if run not in self.inside and self.has_marker(run):
                    self.do(lambda store, run=run: self.carry(store, run))
                self.never_more_than_the_limit()
            for run in sorted(self.inside):
                self.inside.discard(run)
                self.do(lambda store, run=run: self.end(store, run))
        over = [r for r, s in self.starts.items() if self.bucket.read(names.result(r, s.instance))]
        assert over == list(self.starts)
        assert self.left() == []


class LimitedRuns(Runs):
    limit = 2

    def set_up(self) -> None:
        self.do(lambda store: lines.declare(store, Queue("q", concurrency=2)))

    def request(self, number: int) -> dict[str, Any]:
        return {"queue": "q", "limited": True, "priority": number % 2}


class SingleRuns(Runs):
    def request(self, number: int) -> dict[str, Any]:
        return {"lock": LockRequest("k", "skip" if number == 3 else "queue")}


TestLimitedRuns = LimitedRuns.TestCase
TestSingleRuns = SingleRuns.TestCase
TestLimitedRuns.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestSingleRuns.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
