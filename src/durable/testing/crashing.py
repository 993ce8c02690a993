"""`crash_at_every_call`: a workflow, once for each call that its worker makes of the store.

Each time the worker dies at that call, before it is applied or right after, and another one takes
over. A workflow that keeps durable's rules comes to the same end every time; one that does not
is told what differed, after which crash, and where to look.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec, TypeVar

from durable import sync
from durable.decorators import WorkflowFunction
from durable.errors import NeedsAttention, RunCancelled, RunFailed, UsageError
from durable.testing.environment import START, BlockingEnvironment
from durable.testing.hosting import Backend, Host, Stuck
from durable.testing.judging import Judge
from durable.testing.scenario import Crash, CrashWorld, Seen

P = ParamSpec("P")
R = TypeVar("R")

Prepare = Callable[[BlockingEnvironment], object]
Drive = Callable[[BlockingEnvironment, sync.Handle[Any]], object]

CALLS_MAX = 5_000  # of one run: each is a run of its own here
_RUN = "crash-test"


@dataclass(frozen=True)
class CrashReport(Generic[R]):
    """What `crash_at_every_call` found: the same outcome after every crash.

    Attributes:
        workflow: its name.
        outcome: what each run came to: `returned ...` or `raised ...`.
        value: what the workflow returned; None if it raised.
        calls: how many calls of the store the worker made without a crash.
        crashes: how many runs were crashed: reads once, writes before and after they applied.
        steps: paths of the calls that the run records, in their order.
        body_runs: the most often that the body of each call began in one crashed run.
        varying: paths of the calls that return something else each time, which was taken as is.
    """

    workflow: str
    outcome: str
    value: R | None
    calls: int
    crashes: int
    steps: list[str]
    body_runs: dict[str, int] = field(default_factory=dict)
    varying: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        twice = sorted(path for path, times in self.body_runs.items() if times > 1)
        lines = [
            f"{self.workflow}: {self.calls} store calls, {self.crashes} crashes, each time it "
            + self.outcome
        ]
        if twice:
            lines.append(f"bodies that may run again after a crash: {', '.join(twice)}")
        if self.varying:
            lines.append(f"calls that vary from run to run: {', '.join(self.varying)}")
        return "\n".join(lines)


@dataclass(frozen=True)
class CrashTest:
    """`crash_at_every_call`, with its options.

    Called with a workflow and its arguments, it returns a `CrashReport`.
    """

    prepare: Prepare | None = None
    drive: Drive | None = None
    seed: int = 0
    backend: Backend = "asyncio"

    def options(
        self,
        *,
        prepare: Prepare | None = None,
        drive: Drive | None = None,
        seed: int | None = None,
        backend: Backend | None = None,
    ) -> CrashTest:
        """The same test with other options.

        Args:
            prepare: called with the environment of each run before it starts: puts stubs in
                place, empties whatever the steps write to.
            drive: called with the environment and the run's handle once it has started and
                waits: sends it what it waits for.
            seed: of every random choice that durable makes.
            backend: the event loop of the workflow, `asyncio` or `trio`.
        """
        given = {"prepare": prepare, "drive": drive, "seed": seed, "backend": backend}
        changed: dict[str, Any] = {name: v for name, v in given.items() if v is not None}
        return dataclasses.replace(self, **changed)

    def __call__(
        self, workflow: WorkflowFunction[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> CrashReport[R]:
        """Run the workflow without a crash, then once for each call of the store with one there.

        Blocks; also in an async test. Stubs of other environments do not count here.

        Raises:
            CrashTestFailed: a crash changed what the run comes to, or the workflow does not do
                the same each time it runs.
            UsageError: it is no workflow, or makes more calls than can be tried.
        """
        if not isinstance(workflow, WorkflowFunction):
            raise UsageError(
                "only workflows can be crash-tested, not "
                f"{getattr(workflow, '__qualname__', workflow)!r}",
                hint="decorate the function with @workflow",
            )
        asked = workflow if workflow.run_id is not None else workflow.options(id=_RUN)
        values: list[Any] = []

        def play(crash: Crash | None) -> Seen:
            return self._play(asked, args, kwargs, crash, values)

        judge = Judge(asked.definition, asked.run_id or _RUN, play(None), play(None))
        crashes = 0
        for call in range(1, CALLS_MAX + 1):
            seen = play(crash := Crash(call, applied=False))
            if seen.crashed_at is None:
                break
            judge.judge(crash, seen)
            crashes += 1
            if seen.crashed_at[0] not in ("read", "list"):
                judge.judge(crash := Crash(call, applied=True), play(crash))
                crashes += 1
        else:
            raise UsageError(
                f"{asked.name} makes more than {CALLS_MAX} calls of the store",
                hint="crash-test it with a smaller input",
            )
        return CrashReport(
            asked.name, judge.expected.outcome, values[0] if values else None, call - 1, crashes,
            judge.paths, judge.body_runs, judge.varying_paths,
        )  # fmt: skip

    def _play(
        self,
        workflow: WorkflowFunction[Any, Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        crash: Crash | None,
        values: list[Any],
    ) -> Seen:
        """One run, in an environment of its own."""
        host = Host(self.backend)
        world = CrashWorld(host.clock, seed=self.seed, start=START)
        host.in_flight = lambda: world.in_flight
        host.open(world.open)
        try:
            env = BlockingEnvironment(host, world)
            if self.prepare is not None:
                self.prepare(env)
            env.settle()
            world.arm(crash)
            handle = env.client.start(workflow, *args, **kwargs)
            trouble = ""
            try:
                if self.drive is not None:
                    env.settle()
                    self.drive(env, handle)
                values.append(handle.result())
            except (RunFailed, RunCancelled):
                pass  # that is an outcome too
            except (NeedsAttention, Stuck) as e:
                trouble = str(e)
            env.settle()
            return host.call(lambda: world.seen(handle, workflow.definition, trouble))
        finally:
            host.close()


crash_at_every_call = CrashTest()
