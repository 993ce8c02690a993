"""The random programs of the replay fuzz, as workflows that are simulated."""

from __future__ import annotations

import asyncio
import functools
import re
import zlib
from collections.abc import Awaitable
from types import CodeType
from typing import Any

import anyio

import durable
from durable import gather, step, workflow
from durable.protocol.retries import Retry
from durable.runtime.scopes import Scope, here
from tests.runtime.harness import described, leaves, sub, through
from tests.runtime.programs import program
from tests.simulation.witness import Body, Witness
from tests.virtual_time import virtual_seconds


def body_at(name: str) -> Body:
    """One slot a call, though a helper that runs in several branches makes it several times."""
    return Body(f"{name}@{durable.current().idempotency_key[:6]}")


@step(name="sim.s", retry=Retry(attempts=3, first=0.5))
async def _s(i: int, log: str = "") -> str:
    body = body_at(f"s{i}")
    await virtual_seconds(body.seconds)
    return body.value()


@step(name="sim.f", attempts=1)
async def _f(i: int) -> str:
    body = body_at(f"f{i}")
    await virtual_seconds(body.seconds)
    raise body.error()


@step(name="sim.r", retry=Retry(attempts=3, first=1.0, factor=2.0))
async def _r(i: int) -> str:
    body = body_at(f"r{i}")
    await virtual_seconds(body.seconds)
    if durable.current().attempt == 1:
        raise body.error()
    return body.value()


class _Asyncio:
    """asyncio, but for the functions that begin coroutines in the order of their addresses."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    def as_completed(self, calls: Any) -> Any:
        return asyncio.as_completed([asyncio.ensure_future(call) for call in calls])


class _Words:
    """The vocabulary of a program, for one execution."""

    def __init__(self, witness: Witness, source: str) -> None:
        self._witness = witness
        self._has_timeouts = re.search("timeout|_after|wait_for", source) is not None

    def all(self) -> dict[str, Any]:
        return {
            "anyio": anyio, "asyncio": _Asyncio(), "s": _s, "f": _f, "r": _r, "note": self._note,
            "through": through, "log": self._log, "seen": self._seen, "pick": self._pick,
            "names": described, "leaves": leaves, "sub": sub, "gather": gather,
            "dmap": durable.map,
        }  # fmt: skip

    def _log(self, entry: Any) -> None:
        scope = here.get()
        if self._has_timeouts and isinstance(scope, Scope) and scope.is_decided():
            # Whether a bare timeout ended before the decision that closed the branch is chance.
            return
        self._witness.got(entry)

    def _seen(self) -> str:
        return f"{self._crc():08x}"

    def _pick(self, n: int) -> int:
        return self._crc() % n

    def _crc(self) -> int:
        # The numbers behind the slots tell executions of bodies apart, and are chance.
        return zlib.crc32(repr(self._witness.log).encode())

    async def _note(self, awaitable: Awaitable[Any]) -> Any:
        try:
            value = await awaitable
        except ValueError as e:
            self._log(str(e))
            raise
        except anyio.get_cancelled_exc_class():
            self._log("cancelled")
            raise
        self._log(value)
        return value


@workflow(name="sim.program")
async def any_program(seed: int) -> Any:
    witness, source = Witness(), _source(seed)
    return await carried_out(witness, _compiled(source), _Words(witness, source).all())


async def carried_out(witness: Witness, compiled: CodeType, words: dict[str, Any]) -> Any:
    """What the function `program` of that source comes to, in this vocabulary."""
    exec(compiled, words)
    try:
        return witness.left(await words["program"]())
    except (Exception, BaseExceptionGroup) as e:  # a cancellation may be among others
        witness.raised(e)
        raise


@functools.lru_cache(maxsize=64)  # of the runs of one schedule, and their takeovers
def _source(seed: int) -> str:
    return program(seed, native=True)


@functools.lru_cache(maxsize=64)
def _compiled(source: str) -> CodeType:
    return compile(source, "<program>", "exec")
