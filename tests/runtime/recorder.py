"""Records or replays one run of a fixed program on an SQLite store; test_cross_version starts it.

    python -m tests.runtime.recorder DATABASE

Prints one JSON object: what the run came to, and the bodies that ran.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import sys
from decimal import Decimal
from typing import Any

import anyio
import msgspec

import durable
from durable.protocol import names, records
from durable.protocol.journal import seen
from durable.protocol.records import Epoch, Start
from durable.runtime.closing import Finished
from durable.runtime.execution import Execution
from durable.runtime.facts import load
from durable.runtime.surroundings import Surroundings
from durable.store import Store
from durable.store.sqlite import SqliteBackend
from durable.system import System

RUN = "run"
bodies: list[str] = []


@durable.step
async def pick(words: set[str], when: dt.datetime, rates: dict[str, Decimal]) -> list[str]:
    """Its arguments and its value come from sets, whose order another hash seed changes."""
    bodies.append("pick")
    return sorted(words)


@durable.step
async def echo(value: frozenset[str]) -> frozenset[str]:
    bodies.append("echo")
    return value


@durable.step(attempts=1)
async def fail(word: str) -> str:
    bodies.append(f"fail {word}")
    raise LookupError(word, {"tried": 1})


@durable.step
def square(x: int) -> int:
    bodies.append("square")
    return x * x


@durable.workflow
async def program() -> dict[str, Any]:
    log: list[str] = []

    async def noted(word: str) -> str:
        log.append(word)
        return word

    async def branch(word: str) -> str:
        got = await echo(frozenset({word, "x"}))
        await noted(word)
        return "".join(sorted(got))

    words = {"amber", "blue", "coral", "dune", "elm", "fir"}
    chosen = await pick(words, dt.datetime(2026, 1, 1, tzinfo=dt.UTC), {"eur": Decimal("1.10")})
    branches = await durable.gather(*[branch(word) for word in chosen])
    mapped = await durable.map(square.call, range(5), limit=2)
    native = await asyncio.gather(*[echo(frozenset({word})) for word in chosen])
    try:
        await fail("amber")
    except LookupError as e:
        log.append(repr(e))
    return {
        "log": log, "branches": branches, "mapped": mapped,
        "native": ["".join(sorted(value)) for value in native],
    }  # fmt: skip


async def main(database: str) -> None:
    store = Store(SqliteBackend(database))
    start = records.encode(Start("program", msgspec.Raw(b"{}"), "i", "start"))
    await store.create(names.start(RUN), start, nonce="start")
    facts = await load(store, RUN)
    assert facts is not None
    epoch = max((e.epoch for e in facts.epochs), default=0 if facts.fresh else 1) + 1
    if epoch > 1:
        claim = Epoch(epoch, "w", "", "takeover", f"e{epoch}", 0.0, seen=seen(facts.steps))
        await store.create(names.epoch(RUN, "i", epoch), records.encode(claim), nonce=claim.nonce)
    limit = anyio.CapacityLimiter(4)
    execution = Execution(
        around=Surroundings(
            store=store, system=System(), trusted=lambda: True, steps=limit, workflows=limit
        ),
        definition=program.definition, run_id=RUN, instance="i", epoch=epoch,
        journal=facts.journal(), args=(), kwargs={},
    )  # fmt: skip
    async with anyio.create_task_group() as tasks:
        await execution.run_to_end(tasks.start_soon)
    await store.aclose()
    closing = execution.closing
    assert isinstance(closing, Finished), closing
    assert isinstance(closing.value, msgspec.Raw), closing.failure
    print(json.dumps({"value": bytes(closing.value).decode(), "bodies": bodies, "epoch": epoch}))


if __name__ == "__main__":
    anyio.run(main, sys.argv[1])
