"""The workflows that the crash harness runs: every way to call steps, and proof of what happened.

Each body returns a value made anew at every execution, so a body that ran again would give
another value, and any change of a recorded value shows. Two kinds of lines go into a file outside
the store, each by one write: `body` (an execution has ended, before it returns) and `received`
(the workflow was handed an outcome). A *slot* is the place of a call in the workflow, given by
this code and not by durable: `tests.crash.expected` says which slots each run must fill.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import secrets
import time
from dataclasses import dataclass

import anyio

import durable
from durable import Fatal, current, gather, step, workflow
from durable.protocol.retries import Retry

PROCESS = os.environ.get("CRASH_PROCESS", "")  # the harness's name for this process
LARGE = 20_000  # characters: too much to be listed with the run
PATIENCE = 0.08  # seconds; about half of all bodies take longer
QUICK = Retry(attempts=3, first=0.05)

_log = os.open(os.environ.get("CRASH_LOG", os.devnull), os.O_WRONLY | os.O_APPEND | os.O_CREAT)


class Flaky(Exception):
    """What failing bodies raise."""


@dataclass
class Stamp:
    """What bodies return. `blob` follows from the token, so that damage to it shows."""

    slot: str
    token: str
    blob: str = ""


@dataclass
class Seen:
    """One received outcome, as workflows report it in their result."""

    slot: str
    token: str


class Received:
    """What one execution of a workflow is handed, in order, each written down at once."""

    def __init__(self) -> None:
        self.items: list[Seen] = []
        place = current()
        self._about = {"run": place.run_id, "epoch": place.epoch}
        _write("enter", **self._about)

    def value(self, stamp: Stamp) -> Stamp:
        self._note(
            stamp.slot, stamp.token, "value", hashlib.sha256(stamp.blob.encode()).hexdigest()
        )
        return stamp

    def error(self, error: Exception) -> None:
        _, slot, token = str(error).split()
        self._note(slot, token, "error", type(error).__name__)

    def _note(self, slot: str, token: str, outcome: str, proof: str) -> None:
        index = len(self.items)
        self.items.append(Seen(slot, token))
        _write(
            "received", **self._about,
            index=index, slot=slot, token=token, outcome=outcome, proof=proof,
        )  # fmt: skip


def _write(kind: str, **fields: object) -> None:
    line = json.dumps({"kind": kind, "process": PROCESS, "at": _now(), **fields})
    # The first newline ends a line that a dying process has torn.
    os.write(_log, f"\n{line}\n".encode())


def _now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Body:
    """One execution of a step's body."""

    def __init__(self, slot: str) -> None:
        self.slot, self.token, self.began = slot, secrets.token_hex(8), _now()

    def ends(self, size: int = 0) -> Stamp:
        self._write("value")
        return Stamp(self.slot, self.token, blob(self.token, size))

    def fails(self, kind: type[Exception] = Flaky) -> Exception:
        self._write("error")
        return kind(f"failed {self.slot} {self.token}")

    def _write(self, outcome: str) -> None:
        place = current()
        _write(
            "body", run=place.run_id, slot=self.slot, key=place.idempotency_key,
            epoch=place.epoch, attempt=place.attempt, token=self.token, outcome=outcome,
            began=self.began,
        )  # fmt: skip


def blob(token: str, size: int) -> str:
    """As many characters as asked for, made from the token."""
    return (token * (size // len(token) + 1))[:size]


def _pause() -> float:
    return random.uniform(0, 0.15)


# -- steps ----------------------------------------------------------------------------------------


@step(retry=QUICK)
async def work(slot: str, size: int = 0) -> Stamp:
    body = Body(slot)
    await anyio.sleep(_pause())  # real: it is killed meanwhile
    return body.ends(size)


@step(retry=QUICK)
def toil(slot: str, size: int = 0) -> Stamp:
    body = Body(slot)
    time.sleep(_pause())  # real: it is killed meanwhile
    return body.ends(size)


@step(retry=QUICK)
async def flaky(slot: str, failures: int) -> Stamp:
    """Succeeds after so many failed attempts."""
    body = Body(slot)
    await anyio.sleep(_pause())  # real: it is killed meanwhile
    if current().attempt <= failures:
        raise body.fails()
    return body.ends()


@step(retry=QUICK)
async def hopeless(slot: str) -> Stamp:
    """Fails at each of its attempts."""
    body = Body(slot)
    await anyio.sleep(_pause())  # real: it is killed meanwhile
    raise body.fails(ValueError)


@step(retry=QUICK)
def fatal(slot: str) -> Stamp:
    """Fails once, for good."""
    raise Body(slot).fails(Fatal)


# -- workflows ------------------------------------------------------------------------------------


@workflow
async def sequence(width: int) -> list[Seen]:
    """One step after the other; some fail before they succeed."""
    received = Received()
    for i in range(width):
        received.value(await work(f"plain-{i}"))
        received.value(await flaky(f"flaky-{i}", failures=i % 3))
    received.value(await toil.call("last"))
    return received.items


@workflow
async def caught(width: int) -> list[Seen]:
    """Errors are handed over, caught, and worked around."""
    received = Received()
    for i in range(width):
        try:
            received.value(await hopeless(f"hopeless-{i}"))
        except ValueError as e:
            received.error(e)
        try:
            received.value(await fatal.call(f"fatal-{i}"))
        except Fatal as e:
            received.error(e)
        received.value(await work(f"instead-{i}"))
    return received.items


@workflow
async def doomed(width: int) -> list[Seen]:
    """Fails with the error of its last step."""
    received = Received()
    for i in range(width):
        received.value(await work(f"before-{i}"))
    try:
        received.value(await hopeless("end"))
    except ValueError as e:
        received.error(e)
        raise
    return received.items


@workflow
async def side_by_side(width: int) -> list[Seen]:
    """`gather` over steps, and over helpers that make several calls each."""
    received = Received()

    async def branch(i: int) -> None:
        received.value(await work(f"branch-{i}-a"))
        received.value(await flaky(f"branch-{i}-b", failures=i % 2))

    await gather(*[branch(i) for i in range(width)])
    stamps = await gather(work("one"), toil.call("two"), work("three", size=LARGE))
    for stamp in stamps:
        received.value(stamp)
    return received.items


@workflow
async def mapped(width: int) -> list[Seen]:
    """`map` over items, three at a time, two calls each."""
    received = Received()

    async def item(i: int) -> None:
        received.value(await work(f"item-{i}-a"))
        received.value(await toil.call(f"item-{i}-b"))

    await durable.map(item, range(2 * width), limit=3)
    received.value(await work("last"))
    return received.items


@workflow
async def plain_asyncio(width: int) -> list[Seen]:
    """`asyncio.gather` and a task that runs beside other steps."""
    received = Received()
    beside = asyncio.create_task(work("beside"))
    stamps = await asyncio.gather(
        *[work(f"together-{i}") for i in range(width)], flaky("rough", failures=1)
    )
    for stamp in stamps:
        received.value(stamp)
    received.value(await toil.call("after"))
    received.value(await beside)
    return received.items


@workflow
async def as_they_come(width: int) -> list[Seen]:
    """`asyncio.as_completed`: the order of the results is an outcome of its own."""
    received = Received()
    calls = [work(f"racer-{i}") for i in range(2 * width)]
    for coming in asyncio.as_completed([*calls, toil.call("walker")]):
        received.value(await coming)
    received.value(await work("last"))
    return received.items


@workflow
def in_a_thread(width: int) -> list[Seen]:
    """A sync workflow: its steps block."""
    received = Received()
    for i in range(width):
        received.value(toil(f"toil-{i}"))
        try:
            received.value(fatal(f"fatal-{i}"))
        except Fatal as e:
            received.error(e)
    received.value(toil("large", size=LARGE))
    return received.items


@workflow
async def large(width: int) -> list[Seen]:
    """Values too large to be listed with the run."""
    received = Received()
    for i in range(width):
        received.value(await work(f"large-{i}", size=LARGE * (i + 1)))
    stamps = await gather(*[toil.call(f"wide-{i}", size=LARGE) for i in range(width)])
    for stamp in stamps:
        received.value(stamp)
    return received.items


@workflow
async def inner(part: str, width: int) -> list[Stamp]:
    return [await work(f"{part}-{i}") for i in range(width)]


@workflow
async def nested(width: int) -> list[Seen]:
    """Workflows inside a workflow, one after the other and side by side."""
    received = Received()
    for stamp in await inner("first", width):
        received.value(stamp)
    received.value(await work("between"))
    for part in await gather(inner("left", width), inner("right", width)):
        for stamp in part:
            received.value(stamp)
    return received.items


@workflow
async def decided(width: int) -> list[Seen]:
    """A branch of a `gather` fails and closes the others, wherever they stand."""
    received = Received()

    async def long_branch(i: int) -> None:
        for j in range(3):
            received.value(await work(f"closed-{i}-{j}"))

    async def failing_branch() -> None:
        received.value(await work("fuse"))
        try:
            await fatal.call("spark")
        except Fatal as e:
            received.error(e)
            raise

    with_failure = [long_branch(i) for i in range(width)]
    try:
        await gather(*with_failure, failing_branch())
    except Fatal:
        received.value(await work("after"))
    return received.items


@workflow
async def impatient(width: int) -> list[Seen]:
    """A timeout cuts calls off, or just does not: which of the two is an outcome."""
    received = Received()
    for i in range(width):
        try:
            async with asyncio.timeout(PATIENCE):
                stamp = await work(f"slow-{i}")
        except TimeoutError:
            stamp = await work(f"instead-{i}")
        received.value(stamp)
    received.value(await work("last"))
    return received.items
