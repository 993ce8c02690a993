"""The test environment: a client and a worker on virtual time, for async tests and for sync ones.

    async with environment() as env:
        handle = await env.client.start(remind, "ada")
        await env.advance("365d")

    with environment() as env:
        receipt = env.client.run(checkout, "A-1")

Both have an event loop of their own in a thread. Its time stands still until the test waits for
something, and then takes no longer than the computing does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, cast

import anyio
import anyio.to_thread

from durable import sync
from durable.client import Client, Handle, StepSummary
from durable.decorators import StepFunction, WorkflowFunction
from durable.errors import UsageError
from durable.runtime.turns import in_trio
from durable.testing.across import Across
from durable.testing.asserting import compare_steps
from durable.testing.clock import Pending
from durable.testing.describing import describe
from durable.testing.faults import Faults
from durable.testing.hosting import Backend, Host
from durable.testing.stubs import NOTHING, Stub
from durable.testing.world import World

P = ParamSpec("P")
R = TypeVar("R")

START = datetime(2024, 1, 1, tzinfo=UTC)


class Stage:
    """What the async and the blocking environment have in common."""

    def __init__(self, host: Host, world: World) -> None:
        self._host = host
        self._world = world

    @property
    def now(self) -> datetime:
        """The virtual time: that of the store, and of every timer."""
        return self._world.now

    @property
    def seed(self) -> int:
        """Of every random choice that durable makes here."""
        return self._world.seed

    def describe(self) -> str:
        """What is recorded of every run, as text for people."""
        return describe(self._world.bucket)

    @property
    def faults(self) -> Faults:
        """What goes wrong with the worker's calls of the store; the client's are spared."""
        return self._world.faults

    def stub(
        self,
        step: StepFunction[Any, Any] | str,
        body: Callable[..., Any] | None = None,
        /,
        *,
        returns: Any = NOTHING,
        raises: BaseException | type[BaseException] | None = None,
    ) -> Stub:
        """Put something in the place of a step's body, for every run of this environment.

        The call is recorded and retried as ever. A later stub of the same step replaces it.

        Args:
            step: the step, or the name it is recorded under.
            body: a function to call with the step's arguments.
            returns: the value of every call.
            raises: the error of every call.

        Raises:
            UsageError: there is no such step, or not exactly one of the three is given.
        """
        return self._world.stubs.put(step, body, returns, raises)

    def unstub(self, step: StepFunction[Any, Any] | str) -> None:
        """The step's own body runs again."""
        self._world.stubs.remove(step)

    def body_runs(self, handle: Handle[Any] | sync.Handle[Any]) -> dict[str, int]:
        """How often the body of each call of the run began here, by the call's path."""
        counts = self._world.body_runs
        return {path: n for (run, path), n in counts.items() if run == handle.id}


class Environment(Stage):
    """For async tests, on whatever event loop; see the module's docstring."""

    def __init__(self, host: Host, world: World) -> None:
        super().__init__(host, world)
        self._client = cast("Client", Across(host, world.client))

    @property
    def client(self) -> Client:
        """A client of the environment's store; its runs are carried by the worker."""
        return self._client

    async def advance(self, by: float | str | timedelta) -> None:
        """Let that much time pass, and everything be done that is due by then.

        Raises:
            UsageError: it is no duration.
        """
        await self._host.across(lambda: self._world.advance(by))

    async def settle(self) -> None:
        """Let everything be done that can be done without time passing."""
        await self._host.across(self._world.settle, Pending(moves=False))

    async def crash_worker(self) -> None:
        """Kill the worker as `kill -9` would, and begin another, which takes over."""
        await self._host.across(self._world.crash_worker)

    async def steps(self, handle: Handle[Any]) -> list[StepSummary]:
        """The calls that are recorded of a run so far, in their order."""
        return await handle.steps()

    async def assert_steps(self, handle: Handle[Any], paths: Iterable[str]) -> None:
        """Assert that exactly these calls are recorded, in this order: `["charge.1", ...]`."""
        compare_steps(handle.id, await handle.steps(), paths)


class BlockingEnvironment(Stage):
    """For sync tests; see the module's docstring."""

    def __init__(self, host: Host, world: World) -> None:
        super().__init__(host, world)
        self._client = sync.blocking(world.client, host)

    @property
    def client(self) -> sync.Client:
        """A blocking client of the environment's store; its runs are carried by the worker."""
        return self._client

    def advance(self, by: float | str | timedelta) -> None:
        """Let that much time pass, and everything be done that is due by then.

        Raises:
            UsageError: it is no duration.
        """
        self._host.call(lambda: self._world.advance(by))

    def settle(self) -> None:
        """Let everything be done that can be done without time passing."""
        self._host.call(self._world.settle, Pending(moves=False))

    def crash_worker(self) -> None:
        """Kill the worker as `kill -9` would, and begin another, which takes over."""
        self._host.call(self._world.crash_worker)

    def steps(self, handle: sync.Handle[Any]) -> list[StepSummary]:
        """The calls that are recorded of a run so far, in their order."""
        return handle.steps()

    def assert_steps(self, handle: sync.Handle[Any], paths: Iterable[str]) -> None:
        """Assert that exactly these calls are recorded, in this order: `["charge.1", ...]`."""
        compare_steps(handle.id, handle.steps(), paths)


class environment:  # noqa: N801  # read as a function, as `connect` is
    """Open a test environment: `with` gives a blocking one, `async with` an async one.

    Args:
        seed: of every random choice that durable makes: the same seed, the same run.
        backend: the event loop in which steps and workflows run: `asyncio`, or `trio`. By default
            the one that the test runs on.
        start: the virtual time at the beginning, by default 2024-01-01 UTC.
        schedules: start runs by the schedules of every workflow that is imported. By default
            time passes without them.

    Raises:
        UsageError: the backend is unknown, or `start` has no time zone.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        backend: Backend | None = None,
        start: datetime = START,
        schedules: bool = False,
    ) -> None:
        if start.tzinfo is None:
            raise UsageError(
                f"start={start!r} has no time zone", hint="write tzinfo=UTC, for example"
            )
        self._seed = seed
        self._schedules = schedules
        self._backend = backend
        self._start = start
        self._host: Host | None = None

    def _backend_here(self) -> Backend:
        return self._backend or ("trio" if in_trio() else "asyncio")

    def _open(self, backend: Backend) -> tuple[Host, World]:
        if self._host is not None:
            raise UsageError("this environment is open already", hint="make one for each test")
        host = self._host = Host(backend)
        world = World(host.clock, seed=self._seed, start=self._start, schedules=self._schedules)
        host.in_flight = lambda: world.in_flight
        host.open(world.open)
        return host, world

    def _close(self) -> None:
        assert self._host is not None
        host, self._host = self._host, None
        host.close()

    @contextlib.contextmanager
    def awaited(self) -> Iterator[Environment]:
        """The async environment, opened and closed by code that is not: a sync fixture."""
        try:
            yield Environment(*self._open(self._backend_here()))
        finally:
            self._close()

    def __enter__(self) -> BlockingEnvironment:
        return BlockingEnvironment(*self._open(self._backend_here()))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close()

    async def __aenter__(self) -> Environment:
        backend = self._backend_here()
        return Environment(*await anyio.to_thread.run_sync(self._open, backend))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._close)


def run(workflow: WorkflowFunction[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Run a workflow to its end in an environment of its own; blocks, in no time.

    Raises:
        RunFailed: the workflow raised; `__cause__` is its error.
        UsageError: it is no workflow.
        Stuck: it waits for what will never come.
    """
    with environment() as env:
        return env.client.run(workflow, *args, **kwargs)
