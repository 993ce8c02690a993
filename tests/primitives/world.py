"""Several clients on one bucket, each as a process of its own, on the event loop's clock."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import anyio
import msgspec

from durable.client import Client
from durable.errors import StoreUnavailable
from durable.leases import Lease
from durable.protocol.primitives import LeaseRecord
from durable.runtime.identity import Options
from durable.store import REMOTE_PACE, Store, Written
from durable.store.memory import Bucket, Call, Fault, MemoryBackend, Verb
from durable.testing.virtual import virtual_bucket, virtual_system

HOUR = 3600.0


def no_fault(call: Call) -> Fault | None:
    return None


@dataclass
class Process:
    """One client. `fault` decides the fate of its calls, `slept` is how long its machine slept."""

    client: Client = field(init=False)
    fault: Callable[[Call], Fault | None] = no_fault
    slept: float = 0.0

    def decide(self, call: Call) -> Fault | None:
        return self.fault(call)  # whatever stands there by then

    def cut_off(self) -> None:
        """From now on nothing of it reaches the store."""
        self.fault = lambda call: Fault("unsent")


class Limited(MemoryBackend):
    """One write a second for each object, as in Google's; a lost race comes before that."""

    async def replace(
        self, name: str, generation: int, body: bytes, meta: dict[str, str], inline: bool
    ) -> Written | None:
        there = self.bucket.read(name)
        if there and there.generation == generation and self.now() < there.updated + 1.0:
            raise StoreUnavailable("429: too many writes of this object")
        return await super().replace(name, generation, body, meta, inline)


class World:
    """The bucket and the processes around it."""

    def __init__(self, bucket: Bucket | None = None) -> None:
        self.bucket = bucket or virtual_bucket()
        self._seed = 0

    @contextlib.asynccontextmanager
    async def process(
        self, *, patience: float | None = 30.0, limited: bool = False
    ) -> AsyncIterator[Process]:
        self._seed += 1
        process = Process()
        system = virtual_system(self._seed)
        system = msgspec.structs.replace(system, boot=lambda: anyio.current_time() + process.slept)
        kind = Limited if limited else MemoryBackend
        backend = kind(self.bucket, faults=process.decide)
        backend.pace = REMOTE_PACE  # the promised times are those of a bucket
        store = Store(backend, system=system, patience=patience)
        async with Client(store, options=Options(renew_in_thread=False)) as client:
            process.client = client
            yield process

    def record(self, key: str) -> LeaseRecord:
        stored = self.bucket.read(f"leases/{key}")
        assert stored is not None
        return msgspec.json.decode(stored.body or b"", type=LeaseRecord)

    def writes(self) -> int:
        return sum(self.bucket.calls[verb] for verb in ("create", "replace", "delete"))


def once(verb: Verb, fault: Fault) -> Callable[[Call], Fault | None]:
    """The next call of this verb suffers the fault, no other."""
    left = [fault]

    def decide(call: Call) -> Fault | None:
        return left.pop() if left and call.verb == verb else None

    return decide


async def lease(process: Process, key: str = "job", **options: object) -> Lease:
    """Acquire a lease that is free."""
    got = await process.client.lease(key, **options)  # type: ignore[arg-type]  # arguments are passed on
    assert isinstance(got, Lease), got
    return got
