"""Workflows for the tests of the command line. Loaded as a TARGET, by processes too."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import anyio

from durable import publish, step, sync, wait_event, workflow


@step
async def note(word: str) -> str:
    print(f"note {word}", flush=True)
    return word


@step
async def gate(name: str) -> str:
    """Tells that it has begun, then waits for a file of that name in the working folder."""
    print(f"gate {name}", flush=True)
    while not Path(name).exists():  # noqa: ASYNC240  # the file is another process's
        await anyio.sleep(0.01)  # real: the pace of looking for a file
    return name


@step(attempts=1)
async def break_twice() -> None:
    try:
        raise ConnectionError("first")
    except ConnectionError as e:
        raise ExceptionGroup("both", [ValueError("one"), KeyError("two")]) from e


@workflow
async def breaking() -> None:
    await break_twice()


@step
def hang() -> None:
    print("hang", flush=True)
    threading.Event().wait()


@step(attempts=1)
async def fail(said: str) -> None:
    raise PermissionError(said)


@step
async def die() -> None:
    if not Path("alive").exists():  # noqa: ASYNC240  # the file is another process's
        os._exit(9)


@workflow
async def three(word: str, times: int = 1) -> list[str]:
    first = await note(word * times)
    second = await gate("go")
    return [first, second, await note("last")]


@workflow
async def telling(word: str) -> str:
    publish("progress", {"done": 0})
    await note(word)
    publish("progress", {"done": 1})
    await gate("go")
    publish("progress", {"done": 2})
    return word


@workflow
async def failing(said: str) -> None:
    await note("before")
    await fail(said)


@step(attempts=1)
async def reject() -> None:
    raise PermissionError("closed")


@step(undo=reject)
async def kept() -> None: ...


@workflow
async def saga() -> None:
    await kept()
    await fail("no")


@workflow
async def quick(word: str) -> dict[str, str]:
    return {"said": await note(word)}


@workflow
def hanging() -> None:
    hang()


@workflow
async def stubborn() -> None:
    while True:
        try:
            await note("stubborn")
            await anyio.sleep_forever()
        except BaseException:
            pass


@workflow
async def deadly() -> str:
    await note("kept")
    await die()
    return await note("done")


not_a_workflow = 1


@step(attempts=1)
async def mend(word: str) -> str:
    """Fails until a file `mended` is there."""
    if not Path("mended").exists():  # noqa: ASYNC240  # the test makes it
        raise RuntimeError(f"{word} is broken")
    return f"{word} works"


@workflow
async def mendable(word: str) -> list[str]:
    return [await note("first"), await mend(word), await note("last")]


@workflow(events={"approval": dict[str, int]})
async def approved(timeout: str = "10d") -> int:
    said = await wait_event("approval", timeout=timeout)
    return int(said["limit"])


@workflow
async def asking() -> str:
    publish("phase", "asked")
    said = await wait_event("answer", str)
    publish("phase", "answered")
    return said


@workflow
def nap(duration: str) -> str:
    sync.sleep(duration)
    return "rested"


@workflow(name="cli event loop")
async def event_loop() -> str:
    return type(asyncio.get_running_loop()).__module__
