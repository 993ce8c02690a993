"""A worker as one process of a test: it shares nothing with others but the bucket, and can die."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import anyio
import anyio.abc
import msgspec

from durable.decorators import workflows
from durable.protocol import names, records
from durable.protocol.leases import Terms
from durable.protocol.records import Lease
from durable.runtime.definitions import WorkflowDefinition, Workflows
from durable.runtime.identity import Options
from durable.runtime.worker import Worker
from durable.store import Store
from durable.store.memory import Bucket, Call, Fault, MemoryBackend, Verb
from durable.system import System

T = TypeVar("T")

_BELLS = "bells/"

# A lease that is not renewed: nobody takes a run from a process before it is known to be dead,
# and time may jump by centuries.
TERMS = Terms(ttl=1e15, margin=1e14)


class ProcessBackend(MemoryBackend):
    """The bucket as one process sees it; once that is dead, none of its calls goes out.

    Args:
        changed: told of every object that this process has created, replaced or deleted.
    """

    def __init__(
        self,
        bucket: Bucket,
        *,
        faults: Callable[[Call], Fault | None] | None = None,
        changed: Callable[[Verb, str], None] = lambda verb, name: None,
    ) -> None:
        super().__init__(bucket, faults=faults)
        self.dead = False
        self._changed = changed

    async def _begin(self, verb: Verb, name: str) -> Fault | None:
        await self._only_the_living()
        return await super()._begin(verb, name)

    async def _suffer(
        self, fault: Fault | None, verb: Verb, name: str, apply: Callable[[], T]
    ) -> T:
        await self._only_the_living()
        answer = await super()._suffer(fault, verb, name, apply)
        if verb not in ("read", "list"):
            self._changed(verb, name)
        await self._only_the_living()
        return answer

    async def _only_the_living(self) -> None:
        if self.dead:
            await anyio.sleep_forever()


class Process:
    """A worker, and the scope it lives in. Made and used in the event loop."""

    def __init__(
        self, backend: ProcessBackend, system: System, workflows: Workflows, options: Options
    ) -> None:
        self.backend = backend
        self.worker = Worker(Store(backend, system=system), workflows, options)
        self.gone = anyio.Event()
        self._scope = anyio.CancelScope()

    async def live(
        self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Until it is killed."""
        try:
            with self._scope:
                await self.worker.run(task_status=task_status)
        finally:
            self.gone.set()

    def kill(self) -> None:
        """As kill -9: from now on nothing of it reaches the store, and its death is proved."""
        self.backend.dead = True
        self._scope.cancel()
        bucket, name = self.backend.bucket, names.worker(self.worker.id)
        stored = bucket.read(name)
        if stored is not None and stored.body is not None:
            lease = msgspec.json.decode(stored.body, type=Lease)
            dead = msgspec.structs.replace(lease, state="dead")
            bucket.put(name, records.encode(dead), stored.meta, inline=True)

    def stop(self) -> None:
        """As SIGTERM: it gives back what it holds."""
        self.worker.stop()

    @property
    def in_flight(self) -> list[str]:
        """Paths of the calls whose bodies or writes are in flight."""
        runners = list(self.worker.runners.values())
        return [
            f"{path} of run {runner.run!r}"
            for runner in runners
            if runner.execution is not None
            for path in list(runner.execution.running)
        ]

    def hear(self, verb: Verb, name: str) -> None:
        """Somebody changed this object: a bell is answered at once, not at the next poll."""
        if verb != "delete" and name.startswith(_BELLS) and not self.gone.is_set():
            self.worker.nudge()


class Registered(Mapping[str, WorkflowDefinition]):
    """Every workflow decorated in this process, those of a test's own body as well."""

    def __getitem__(self, name: str) -> WorkflowDefinition:
        return workflows()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(workflows())

    def __len__(self) -> int:
        return len(workflows())
