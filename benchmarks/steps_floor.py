"""The floor under durable: its store calls without the framework, `steps_floor.py store SHAPE`.

The same objects, about as large, through the same store port and as many at a time. Per run:
marker and `start` side by side, one create a step, result, history, and the marker's delete. What
durable takes on top of it is the framework: arguments, digests, values, order, contexts. As there,
nobody waits for the marker's delete.
"""

from __future__ import annotations

import anyio
import anyio.abc
from msgspec import Raw
from shapes import URL, WARM_UP, Lag, Meter, Shape, asked, each_run

from durable.protocol import names, records
from durable.store import Store, Written
from durable.store.opening import open_store

INPUT = b'{"args":[1000],"kwargs":{}}'
INSTANCE = "0123456789abcdef0123"
NOW = 1796000000.1234567


async def one_run(store: Store, leaving: anyio.abc.TaskGroup, run: str, steps: int) -> None:
    marker = names.marker("default", run)
    answers: list[Written] = []

    async def create(name: str, size: int, meta: dict[str, str] | None = None) -> None:
        nonce = store.system.token()
        written = await store.create(name, _body(size), nonce=nonce, meta=meta)
        assert isinstance(written, Written)
        answers.append(written)

    async with anyio.create_task_group() as tasks:
        meta = {"workflow": "count", "instance": INSTANCE, "holder": "x" * 16, "owner": "x" * 16}
        tasks.start_soon(create, names.start(run), SIZES["start"])
        tasks.start_soon(create, marker, SIZES["marker"], meta)
    held = answers[1]
    for number in range(1, steps + 1):
        await create(names.step(run, INSTANCE, f"double.{number}"), SIZES["step"])
    await create(names.result(run, INSTANCE), SIZES["result"])
    await create(names.history("2026-01-01T00:00:00.000Z", run), SIZES["history"])
    leaving.start_soon(store.delete, marker, held.generation)


def _body(size: int) -> bytes:
    return b"x" * size


def _sizes() -> dict[str, int]:
    """How long the records of such a run are."""
    raw, token = Raw(b"1234"), "x" * 16
    start = records.Start("count", Raw(INPUT), INSTANCE, token, version="x" * 12, created=NOW)
    made = {
        "start": start,
        "marker": records.Marker(
            INSTANCE, INSTANCE, "count", token, version="x" * 12, holder=token, owner=token,
            request=start,
        ),
        "step": records.Step(
            "double.123", "double", "value", 1, 123, token, NOW, digest="x" * 20, value=raw
        ),
        "result": records.Result("completed", token, 1, NOW, value=raw),
        "history": records.History(
            INSTANCE, INSTANCE, "count", "completed", NOW, NOW, token
        ),
    }  # fmt: skip
    return {kind: len(records.encode(record)) for kind, record in made.items()}


SIZES = _sizes()


async def carry(store: Store, leaving: anyio.abc.TaskGroup, shape: Shape, name: str) -> None:
    await each_run(
        shape, lambda number: one_run(store, leaving, f"{name}-{number:015}", shape.steps)
    )


async def main() -> None:
    _, shape = asked()
    store = open_store(URL)
    async with anyio.create_task_group() as leaving:
        await carry(store, leaving, WARM_UP, "warm")
        async with Lag(shape) as lag:
            with Meter() as meter:
                await carry(store, leaving, shape, "runs")
    await store.aclose()
    meter.report(**lag.figures())


if __name__ == "__main__":
    anyio.run(main)
