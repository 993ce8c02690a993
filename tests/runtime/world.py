"""Several workers on one bucket, on the event loop's clock: started, killed, paused, woken."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import msgspec

from durable.decorators import WorkflowFunction, workflows
from durable.protocol import names, records, values
from durable.protocol.records import Start
from durable.runtime import facts, flags, markers, starting
from durable.runtime.definitions import Workflows
from durable.runtime.identity import Options
from durable.runtime.worker import Worker
from durable.store import REMOTE_PACE, Store
from durable.store.memory import Call, Fault, MemoryBackend, Verb
from durable.testing.virtual import virtual_bucket, virtual_system
from tests.stores import chosen
from tests.virtual_time import virtual_seconds

HOUR = 3600.0  # of virtual time


class PausableBackend(MemoryBackend):
    """The store as a process sees it that can be stopped: none of its calls goes out then.

    It polls as a bucket is polled, which is what the promised times are about.
    """

    pace = REMOTE_PACE

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.awake = anyio.Event()
        self.awake.set()

    async def _begin(self, verb: Verb, name: str) -> Any:
        await self.awake.wait()
        return await super()._begin(verb, name)


@dataclass
class Process:
    """A worker and the scope it lives in."""

    worker: Worker
    backend: PausableBackend
    scope: anyio.CancelScope
    gone: anyio.Event = field(default_factory=anyio.Event)

    def kill(self) -> None:
        """As kill -9: from now on nothing of it reaches the store."""
        self.backend.awake = anyio.Event()
        self.scope.cancel()

    def pause(self) -> None:
        """As SIGSTOP, for the store's eyes."""
        self.backend.awake = anyio.Event()

    def wake(self) -> None:
        self.backend.awake.set()


@dataclass
class DiesAt:
    """A `faults` hook: its process is killed at its n-th store call.

    Attributes:
        call: which call, from 1.
        applied: whether that call still takes effect.
        process: whose; set once it is there.
        calls: made so far, to know how many there are to die at.
    """

    call: int
    applied: bool = False
    process: Process | None = None
    calls: int = 0

    def __call__(self, call: Call) -> Fault | None:
        self.calls += 1
        if self.calls != self.call:
            return None
        if self.process is not None:
            self.process.kill()
        return Fault("slow_reply" if self.applied else "delayed", seconds=HOUR * 1000)

    @property
    def died(self) -> bool:
        return self.calls >= self.call


class World:
    """The bucket and the processes around it."""

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        self.bucket = virtual_bucket()
        self._tasks = tasks
        self._seed = 0
        self.system = virtual_system(999)
        self.store = Store(MemoryBackend(chosen(self.bucket)), system=self.system)

    async def process(
        self,
        *,
        serves: Callable[[str], bool] | None = None,
        code: Workflows | None = None,
        until_idle: bool = False,
        faults: Any = None,
        runtime_folder: Path | None = None,
        **options: Any,
    ) -> Process:
        """A new worker, running; by default it serves all but what schedules start."""
        self._seed += 1
        backend = PausableBackend(chosen(self.bucket), faults=faults)
        known = {
            name: d
            for name, d in workflows().items()
            if (d.schedule is None if serves is None else serves(name))
        }
        worker = Worker(
            Store(backend, system=virtual_system(self._seed)),
            known if code is None else code,
            Options(
                renew_in_thread=False,
                label=f"w{self._seed}",
                runtime_folder=runtime_folder,
                **options,
            ),
        )
        process = Process(worker, backend, anyio.CancelScope())
        if isinstance(faults, DiesAt):
            faults.process = process

        async def live(*, task_status: anyio.abc.TaskStatus[None]) -> None:
            with process.scope:
                await worker.run(until_idle=until_idle, task_status=task_status)
            process.gone.set()
            with contextlib.suppress(RuntimeError):  # killed before it had started
                task_status.started()

        await self._tasks.start(live)
        return process

    def request(self, workflow: WorkflowFunction[..., Any], *args: Any) -> Start:
        """The record of a run that is to be started."""
        definition = workflow.definition
        now = self.store.now()
        return Start(
            workflow=definition.name,
            input=msgspec.Raw(values.encode_call(definition.signature, definition.hints, args, {})),
            instance=self.system.token(),
            nonce=self.system.token(),
            created=now,
            deadline=definition.deadline(now),
            workflow_version=definition.version,
            pinned=definition.pinned,
            lock=definition.lock(args, {}),
            limited=definition.is_limited,
            queue=definition.queue,
            priority=workflow.priority,
        )

    async def start(
        self, run: str, workflow: WorkflowFunction[..., Any], *args: Any, ring: bool = True
    ) -> Start:
        """What a client does: `start` and the marker, then the bell, unless that is lost."""
        start = self.request(workflow, *args)
        if start.limited:
            await starting.start(self.store, run, start)
            return start
        await self.store.create(names.start(run), records.encode(start), nonce=start.nonce)
        await markers.create(self.store, markers.for_start(run, start))
        if ring:
            await markers.ring(self.store, names.queue_bell(start.queue), self.system.token())
        return start

    async def survive(
        self, run: str, workflow: WorkflowFunction[..., Any], death: DiesAt, *args: Any
    ) -> Any:
        """The outcome of a run whose first worker dies as told; the second comes to its aid."""
        start = await self.start(run, workflow, *args)
        over = names.result(run, start.instance)
        await self.process(faults=death)
        with anyio.fail_after(HOUR / 12):
            while not death.died and over not in self.there():
                await virtual_seconds(1)
        await self.process()
        return await self.result(run)

    async def facts(self, run: str) -> facts.Facts:
        found = await facts.load(self.store, run)
        assert found is not None
        return found

    async def result(self, run: str) -> Any:
        """Wait for the outcome: the value, or the failure's message."""
        with anyio.fail_after(HOUR):
            while (found := await facts.load(self.store, run)) is None or found.result is None:
                await virtual_seconds(0.5)
        if found.result.failure is not None:
            return found.result.failure.message
        assert isinstance(found.result.value, msgspec.Raw)
        return values.decode(found.result.value)

    async def attention(self, run: str) -> records.Attention:
        with anyio.fail_after(HOUR):
            while (hint := await flags.read(self.store, "default", run)) is None:
                await virtual_seconds(0.5)
        return hint

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait for a fact; fails after five virtual minutes."""
        with anyio.fail_after(HOUR / 12):
            while not true():
                await virtual_seconds(0.05)

    def there(self) -> list[str]:
        """The names of all objects, without a store call."""
        with self.bucket.lock:
            return list(self.bucket.names.since(""))

    def hints(self, prefix: str) -> list[str]:
        """The names that begin so, without a store call."""
        return [name for name in self.there() if name.startswith(prefix)]

    def writes(self) -> list[str]:
        """The names of all objects written so far, each time."""
        verbs = {"create", "replace", "delete"}
        return [name for verb, name in self.bucket.log if verb in verbs]

    async def names(self, prefix: str = "") -> list[str]:
        return [stored.name async for stored in self.store.list(prefix)]


@contextlib.asynccontextmanager
async def world() -> AsyncIterator[World]:
    async with anyio.create_task_group() as tasks:
        yield World(tasks)
        tasks.cancel_scope.cancel()
