"""The workflows of the golden histories. What is written here never changes: add, do not edit."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import anyio

from durable import (
    Queue,
    Retry,
    gather,
    map,
    now,
    patched,
    random,
    select,
    sleep,
    step,
    timeout,
    uuid,
    wait_event,
    workflow,
)


@step(name="golden.double")
async def double(number: int) -> int:
    return 2 * number


@step(name="golden.kinds")
async def kinds() -> Any:
    return {
        "tuple": (1, "a"), "set": {1, 2}, "bytes": b"\x00\xff", "big": 2**80,
        "decimal": Decimal("1.10"), "when": datetime(2026, 11, 29, 12, tzinfo=UTC),
        "nested": [{"k": (1, 2)}], 3: None,
    }  # fmt: skip


@step(name="golden.refuse", attempts=1)
async def refuse(why: str) -> None:
    raise PermissionError(why)


shut = False  # while histories are recorded of runs that are not over


@step(name="golden.gate")
async def gate() -> str:
    """Where those histories end."""
    if shut:
        await anyio.sleep_forever()
    return "through"


@workflow(name="golden.sequence")
async def sequence(number: int) -> Any:
    found: dict[object, object] = await kinds()
    for _ in range(3):
        number = await double(number)
    return {**found, "number": number}


@workflow(name="golden.parallel")
async def parallel(numbers: list[int]) -> tuple[list[int], int, int]:
    one, two = await gather(double(1), double(2))
    return await map(double, numbers, limit=2), one, two


@workflow(name="golden.caught")
async def caught(why: str) -> str:
    try:
        await refuse(why)
    except PermissionError as e:
        return f"caught {e} {await double(1)}"
    return "not refused"


@workflow(name="golden.failed")
async def failed(why: str) -> None:
    await double(1)
    await refuse(why)


@workflow(name="golden.open")
async def open_(number: int) -> Any:
    doubled = await double(number)
    return [doubled, await gate()]


@workflow(name="golden.slept")
async def slept(number: int) -> int:
    await sleep(0.01)
    number = await double(number)
    await sleep(0.01)
    return await double(number)


@workflow(name="golden.event")
async def event(number: int) -> list[Any]:
    came = await wait_event("golden-go", int)
    try:
        await wait_event("golden-never", timeout=0.01)
    except TimeoutError:
        return [await double(came), "nothing came"]
    return [number]


@workflow(name="golden.selected")
async def selected(number: int) -> list[Any]:
    won, value = await select(quick=double(number), slow=sleep("1h"))
    return [won, value, await double(3)]


@workflow(name="golden.timed")
async def timed(number: int) -> int:
    try:
        async with timeout(0.01):
            await sleep("1h")
    except TimeoutError:
        number += 1
    return await double(number)


@workflow(name="golden.child")
async def child(number: int) -> int:
    return await double(number)


@workflow(name="golden.parent")
async def parent(number: int) -> list[int]:
    handle = await child.start(number)
    inline = await child(number + 1)
    return [await handle.result(), inline]


@step(name="golden.give-back")
async def give_back(number: int, *, result: int | None) -> None: ...


@step(name="golden.lend", undo=give_back)
async def lend(number: int) -> int:
    return number


@workflow(name="golden.undone")
async def undone(why: str) -> None:
    await lend(1)
    await lend(2)
    await refuse(why)


halted = anyio.Event()


@step(name="golden.halt")
async def halt() -> None:
    """Where a run is cancelled."""
    halted.set()
    await anyio.sleep_forever()


@workflow(name="golden.cancelled")
async def cancelled(number: int) -> None:
    await lend(number)
    try:
        await halt()
    finally:
        await double(number)


@step(name="golden.once", at_most_once=True)
async def at_most_once(number: int) -> int:
    return number + 1


@workflow(name="golden.careful")
async def careful(number: int) -> int:
    return await at_most_once(await at_most_once(number))


@step(name="golden.echo")
async def echo(*given: Any) -> list[Any]:
    return [*given]


@workflow(name="golden.chances")
async def chances(number: int) -> list[bool]:
    """What it gives its steps is compared with the record: the same chances on every replay."""
    one = [str(uuid()), random(), patched("golden-patch")]
    first = await echo(*one)
    two = [now().isoformat(), str(uuid("key"))]
    return [first == one, await echo(*two) == two]


# -- parked while they are recorded ---------------------------------------------------------------


def short() -> float:
    """Seconds; long enough to be parked for while histories are recorded."""
    return 20.0 if shut else 0.01


@workflow(name="golden.parked-sleep")
async def parked_sleep(number: int) -> int:
    number = await double(number)
    await sleep(short())
    return await double(number)


@workflow(name="golden.parked-event")
async def parked_event(number: int) -> list[int]:
    number = await double(number)
    return [number, await wait_event("golden-go", int)]


@workflow(name="golden.parked-timeout")
async def parked_timeout(number: int) -> int:
    try:
        await wait_event("golden-never", timeout=short())
    except TimeoutError:
        return await double(number)
    return number


@workflow(name="golden.parked-select")
async def parked_select(number: int) -> list[Any]:
    won, value = await select(event=wait_event("golden-go", int), late=sleep("36500d"))
    return [won, value, await double(number)]


@workflow(name="golden.parked-branches")
async def parked_branches(number: int) -> list[Any]:
    return [*await gather(double(number), wait_event("golden-go", int), child(number))]


@workflow(name="golden.waiting-child")
async def waiting_child(number: int) -> int:
    return await double(await wait_event("golden-child", int) if shut else number)


@workflow(name="golden.parked-child")
async def parked_child(number: int) -> int:
    handle = await waiting_child.start(number)
    return await double(await handle.result())


@step(name="golden.stubborn", retry=Retry(attempts=3, first=20, max=20))
async def stubborn(number: int) -> int:
    if shut:
        raise ConnectionError("not yet")
    return number


@workflow(name="golden.parked-retry")
async def parked_retry(number: int) -> int:
    return await double(await stubborn(number))


@workflow(name="golden.parked-queue", queue=Queue("golden", concurrency=1, keep_slot=True))
async def parked_queue(number: int) -> int:
    if number == IN_THE_WAY:
        await wait_event("golden-never")
    return await double(number)


@workflow(name="golden.parked-lock", singleton="golden", on_conflict="wait")
async def parked_lock(number: int) -> int:
    if number == IN_THE_WAY:
        await wait_event("golden-never")
    return await double(number)


IN_THE_WAY = 0  # the argument of a run that keeps the slot or the lock


@step(name="golden.cheap", durability="group")
async def cheap(number: int) -> int:
    return number + 1


@workflow(name="golden.grouped")
async def grouped(number: int) -> Any:
    before = [await cheap(number), await cheap(number + 1)]
    ordinary = await double(before[1])
    return [*before, ordinary, *await gather(cheap(ordinary), cheap(0))]
