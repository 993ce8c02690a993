"""Runs as a worker leaves them, written straight into a store, and the calls that it then sees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

import anyio
import msgspec

from durable.decorators import StepFunction, WorkflowFunction
from durable.protocol import digests, names, records, values
from durable.protocol.paths import Ordinals
from durable.protocol.records import Start, Step
from durable.runtime import markers
from durable.store import Store

T = TypeVar("T")

INSTANCE = "1" * 20
AT_ONCE = 256  # writes under way at a time


def request(store: Store, workflow: WorkflowFunction[..., Any], *args: object) -> Start:
    """What a client would have written as `start`."""
    definition = workflow.definition
    call = values.encode_call(definition.signature, definition.hints, args, {})
    return Start(
        workflow=definition.name, input=msgspec.Raw(call), instance=INSTANCE,
        nonce=store.system.token(), created=store.now(),
    )  # fmt: skip


def outcome(
    store: Store, step: StepFunction[..., Any], n: int, value: object, *args: object
) -> Step:
    """The record of the n-th step, called with these arguments."""
    definition = step.definition
    first = Ordinals("").path(definition.name)
    return Step(
        path=f"{first.removesuffix('.1')}.{n}", name=definition.name, outcome="value", epoch=1, n=n,
        nonce=store.system.token(), time=store.now(), value=msgspec.Raw(
            values.encode(value, definition.returns)
        ),
        digest=digests.of_call(
            definition.name, definition.signature, args, {}, definition.hints
        ),
    )  # fmt: skip


async def write_run(store: Store, run: str, start: Start, steps: Iterable[Step] = ()) -> None:
    """A run that is not over, with this record; nobody holds it."""
    await store.create(names.start(run), records.encode(start), nonce=start.nonce)
    folder = [(names.step(run, start.instance, step.path), step) for step in steps]
    await each(
        folder, lambda named: store.create(named[0], records.encode(named[1]), nonce=named[1].nonce)
    )
    await markers.create(store, markers.for_start(run, start))


async def each(items: Iterable[T], work: Callable[[T], Awaitable[object]]) -> None:
    """Do the work for every item, many at a time."""
    left = iter(items)

    async def some() -> None:
        for item in left:
            await work(item)

    async with anyio.create_task_group() as tasks:
        for _ in range(AT_ONCE):
            tasks.start_soon(some)


def counted(store: Store) -> Counter[str]:
    """The calls that this store makes from now on, by verb."""
    calls: Counter[str] = Counter()
    for verb in ("create", "replace", "read", "list", "delete"):
        setattr(store.backend, verb, _counting(calls, verb, getattr(store.backend, verb)))
    return calls


def _counting(calls: Counter[str], verb: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def count(*args: object, **kwargs: object) -> Any:
        calls[verb] += 1
        return call(*args, **kwargs)

    return count
