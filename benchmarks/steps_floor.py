"""The floor under durable: its writes without the framework, `steps_floor.py VARIANT SHAPE`.

- `store`: through durable's own store. What durable takes on top of it is the framework:
  arguments, digests, values, order, contexts.
- `requests`: on Google's API through aiohttp alone. What durable takes on top of it is everything.

The same records, encoded as there with a nonce of their own, and as many at a time. Per run:
marker and `start` side by side, one create a step, result, history, and the marker's delete. Per
process: a lease, its renewals, and looks at its bell. As there, nobody waits for the marker's
delete.
"""

from __future__ import annotations

import os
from contextlib import AsyncExitStack

import anyio
import anyio.abc
import msgspec
from msgspec import Raw
from shapes import URL, WARM_UP, Lag, Meter, Shape, asked, each_run
from steps_requests import Requests

from durable.protocol import names, records
from durable.protocol.leases import TTL_DEFAULT, Terms
from durable.store import Store, Written
from durable.store.opening import open_store

INSTANCE = "0123456789abcdef0123"
NOW = 1796000000.1234567
TOKEN = "x" * 16
VALUE = Raw(b"1234")
START = records.Start(
    "count", Raw(b'{"args":[1000],"kwargs":{}}'), INSTANCE, TOKEN, version="x" * 12, created=NOW
)
MARKER = records.Marker(
    INSTANCE, INSTANCE, "count", TOKEN, version="x" * 12, created=NOW, holder=TOKEN, owner=TOKEN,
    request=START,
)  # fmt: skip
MARKER_META = {
    "workflow": "count", "instance": INSTANCE, "created": repr(NOW), "holder": TOKEN,
    "owner": TOKEN,
}  # fmt: skip
STEP = records.Step(
    "double.123", "double", "value", 1, 123, TOKEN, NOW, digest="x" * 26, value=VALUE
)
RESULT = records.Result("completed", TOKEN, 1, NOW, value=VALUE)
HISTORY = records.History(INSTANCE, INSTANCE, "count", "completed", NOW, NOW, TOKEN)

Record = records.Start | records.Marker | records.Step | records.Result | records.History


async def one_run(
    store: Store | Requests, leaving: anyio.abc.TaskGroup, run: str, steps: int
) -> None:
    marker = names.marker("default", run)
    answers: dict[str, Written] = {}

    async def create(name: str, record: Record, meta: dict[str, str] | None = None) -> None:
        nonce = store.system.token()
        body = records.encode(msgspec.structs.replace(record, nonce=nonce))
        written = await store.create(name, body, nonce=nonce, meta=meta)
        assert isinstance(written, Written)
        answers[name] = written

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(create, names.start(run), START)
        tasks.start_soon(create, marker, MARKER, MARKER_META)
    for number in range(1, steps + 1):
        await create(names.step(run, INSTANCE, f"double.{number}"), STEP)
    await create(names.result(run, INSTANCE), RESULT)
    await create(names.history("2026-01-01T00:00:00.000Z", run), HISTORY)
    leaving.start_soon(store.delete, marker, answers[marker].generation)


async def carry(
    store: Store | Requests, leaving: anyio.abc.TaskGroup, shape: Shape, name: str
) -> None:
    await each_run(
        shape,
        lambda number: one_run(store, leaving, f"{name}{os.getpid():07}-{number:08}", shape.steps),
    )


async def hold_lease(store: Store | Requests) -> None:
    """What a process that holds runs sends beside them, until it is cancelled."""
    terms = Terms.of(TTL_DEFAULT)
    held: Written | None = None
    renewal = 0.0
    while True:
        if store.system.boot() >= renewal:
            nonce = store.system.token()
            record = records.Lease(TOKEN, terms.ttl, terms.margin, nonce, label="floor")
            name, body = names.worker(TOKEN), records.encode(record)
            if held is None:
                written = await store.create(name, body, nonce=nonce)
            else:
                written = await store.replace(name, held.generation, body, nonce=nonce)
            assert isinstance(written, Written)
            held, renewal = written, store.system.boot() + terms.period
        await store.read(names.worker_bell(TOKEN))
        await anyio.sleep(store.pace.bell)


async def main() -> None:
    variant, shape = asked()
    async with AsyncExitStack() as last:
        if variant == "store":
            store = open_store(URL)
            last.push_async_callback(store.aclose)
            meter, lag = await measured(store, shape)
        else:
            requests = await last.enter_async_context(Requests(URL))
            meter, lag = await measured(requests, shape)
    meter.report(**lag.figures())


async def measured(store: Store | Requests, shape: Shape) -> tuple[Meter, Lag]:
    async with anyio.create_task_group() as leaving, anyio.create_task_group() as beside:
        beside.start_soon(hold_lease, store)
        await carry(store, leaving, WARM_UP, "warm")
        async with Lag(shape) as lag:
            with Meter() as meter:
                await carry(store, leaving, shape, "runs")
        beside.cancel_scope.cancel()
    return meter, lag


if __name__ == "__main__":
    anyio.run(main)
