"""Objects in memory: for tests, for trying things out, and for faults on demand.

`Bucket` is the object table and decides every precondition under one lock; whatever speaks for
it (`MemoryBackend`, a simulator, an HTTP server) adds its own faults and keeps its rules.
`MemoryBackend` is the store port over a bucket. It counts its calls, so tests can pin costs, and
lets a hook decide the fate of each call.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from itertools import islice, takewhile
from typing import Literal, NamedTuple, TypeVar

import anyio
import anyio.lowlevel
import msgspec

from durable.errors import StoreRefused, StoreUnavailable
from durable.store import (
    EVERYTHING,
    INLINE_BYTES_MAX,
    LOCAL_PACE,
    Backend,
    Page,
    Stored,
    Within,
    Written,
)
from durable.store.sorting import SortedNames
from durable.system import System

PAGE_SIZE = 1000  # as in GCS
LOG_MAX = 200_000  # calls remembered; the older half is dropped beyond

_GENERATIONS = 2**62
_SCRAMBLE = 0x2545F4914F6CDD1D  # odd, so multiplying by it is one-to-one

T = TypeVar("T")
Verb = Literal["create", "replace", "read", "list", "delete", "copy"]


class _Object(NamedTuple):
    full: Stored
    listed: bool  # lists show the body: it is small and meant to be inline


class Bucket:
    """A thread-safe table of objects.

    Args:
        now: the bucket's clock, seconds since the epoch. By default the wall clock as it stood
            when the bucket was made, carried on by the boot clock, so that it never jumps.
        ordered: generations count up. By default they do not, because GCS promises no order
            and nothing may come to rely on one.

    Attributes:
        calls: how many calls were made, by verb.
        log: (verb, name) of each call, in order; the name of a list is its prefix.
        lock: held over whatever must be one decision; re-entrant.
        names: of the objects there are; walked under the lock.
    """

    def __init__(self, now: Callable[[], float] | None = None, *, ordered: bool = False) -> None:
        self.now = now or steady_clock(System())
        self.calls: Counter[Verb] = Counter()
        self.log: list[tuple[Verb, str]] = []
        self._ordered = ordered
        self._count = 0
        self.lock = threading.RLock()
        self.names = SortedNames()
        self._objects: dict[str, _Object] = {}
        self._calls_of: Counter[tuple[Verb, str]] = Counter()
        self._landing: list[tuple[float | None, Callable[[], object]]] = []

    def create(self, name: str, body: bytes, meta: dict[str, str], inline: bool) -> Written | None:
        with self.lock:
            if name in self._objects:
                return None
            put = self.put(name, body, meta, inline=inline)
        return Written(put.generation, put.updated)

    def replace(
        self, name: str, generation: int, body: bytes, meta: dict[str, str], inline: bool
    ) -> Written | None:
        with self.lock:
            there = self._objects.get(name)
            if there is None or there.full.generation != generation:
                return None
            put = self.put(name, body, meta, inline=inline, created=there.full.created)
        return Written(put.generation, put.updated)

    def read(self, name: str) -> Stored | None:
        with self.lock:
            there = self._objects.get(name)
        return None if there is None else _copy(there.full)

    def list(
        self,
        prefix: str,
        token: str | None,
        limit: int = PAGE_SIZE,
        within: Within = EVERYTHING,
    ) -> Page:
        """At most `limit` objects from `prefix`, after the name that `token` is."""
        first, end = max(prefix, within.start), within.end
        with self.lock:
            after = token is not None and token >= first
            names = self.names.since(token if token is not None and after else first, after=after)
            under = takewhile(
                lambda name: name.startswith(prefix) and (not end or name < end), names
            )
            found = [self._objects[name] for name in islice(under, limit + 1)]
        items = [
            _with_body(there.full, there.full.body if there.listed else None)
            for there in found[:limit]
        ]
        if len(found) <= limit:
            return Page(items, None)
        return Page(items, items[-1].name if items else token or "")

    def delete(self, name: str, generation: int) -> bool:
        with self.lock:
            there = self._objects.get(name)
            if there is None or there.full.generation != generation:
                return False
            self.drop(name)
            return True

    def copy(self, source: str, generation: int, name: str) -> Written | None:
        with self.lock:
            there = self._objects.get(source)
            if there is None or there.full.generation != generation or name in self._objects:
                return None
            put = self.put(name, there.full.body or b"", there.full.meta, inline=there.listed)
        return Written(put.generation, put.updated)

    def peek(self, name: str) -> Stored | None:
        """The object itself, not a copy: the caller changes nothing of it."""
        there = self._objects.get(name)
        return None if there is None else there.full

    def put(
        self,
        name: str,
        body: bytes,
        meta: dict[str, str],
        *,
        inline: bool = False,
        now: float | None = None,
        created: float | None = None,
    ) -> Stored:
        """A new generation, whatever is there. `now` is when, `created` the same by default."""
        with self.lock:
            self._count += 1
            generation = self._count
            if not self._ordered:
                generation = generation * _SCRAMBLE % _GENERATIONS
            now = self.now() if now is None else now
            created = now if created is None else created
            full = Stored(name, generation, created, now, dict(meta), bytes(body))
            if name not in self._objects:
                self.names.add(name)
            self._keep(full, inline=inline)
            return full

    def amend(self, name: str, meta: dict[str, str], now: float) -> Stored:
        """Other metadata for the generation that is there."""
        with self.lock:
            there = self._objects[name]
            full = Stored(
                name, there.full.generation, there.full.created, now, dict(meta), there.full.body
            )
            self._keep(full, inline=there.listed)
            return full

    def drop(self, name: str) -> None:
        """Delete the object that is there, whatever its generation."""
        with self.lock:
            del self._objects[name]
            self.names.remove(name)

    def count(self, verb: Verb, name: str) -> int:
        """Note one call; returns how many calls of that verb on that name there were with it."""
        with self.lock:
            self.calls[verb] += 1
            self.log.append((verb, name))
            if len(self.log) > LOG_MAX:
                del self.log[: LOG_MAX // 2]
            self._calls_of[verb, name] += 1
            return self._calls_of[verb, name]

    def land_later(self, call: Callable[[], object], due: float | None) -> None:
        """Carry out `call` at the bucket's time `due`, or at the next `land()` if None."""
        with self.lock:
            self._landing.append((due, call))

    def land(self, now: float | None = None) -> int:
        """Carry out what is under way: all of it, or what is due at `now`. Returns how much."""
        with self.lock:
            waiting, landing = self._landing, []
            if not waiting:
                return 0
            self._landing = []
            for due, call in waiting:
                if now is None or (due is not None and due <= now):
                    landing.append(call)
                else:
                    self._landing.append((due, call))
            for call in landing:
                call()
            return len(landing)

    def _keep(self, full: Stored, *, inline: bool) -> None:
        small = full.body is not None and len(full.body) <= INLINE_BYTES_MAX
        self._objects[full.name] = _Object(full, inline and small)


class Call(NamedTuple):
    """One call about to be made: `nth` of this verb on this name, counted from 1."""

    verb: Verb
    name: str
    nth: int


Kind = Literal[
    "unsent",
    "reply_lost",
    "late",
    "delayed",
    "slow_reply",
    "twice",
    "refused",
    "busy",
    "truncated",
    "short_page",
]


class Fault(msgspec.Struct, frozen=True):
    """What happens to one call.

    Kinds:
        unsent: not applied, no answer.
        reply_lost: applied, no answer.
        late: no answer now; applied `seconds` later by the bucket's clock, or at `land()` if
            `seconds` is None.
        delayed: waits `seconds`, then as usual.
        slow_reply: applied, then waits `seconds` before it answers.
        twice: applied twice; the caller sees the second answer.
        refused: not applied, `StoreRefused`.
        busy: not applied, `StoreUnavailable` as after a 429.
        truncated: a read whose body is cut to `size` bytes.
        short_page: a list that gives at most `size` items, even 0, and a token if there is more.
    """

    kind: Kind
    seconds: float | None = None
    size: int = 0


class MemoryBackend(Backend):
    """The store port over a `Bucket`; several may share one.

    Args:
        faults: asked before each call what is to happen to it; None is nothing.
        page_size: most items of one list page.
    """

    pace = LOCAL_PACE

    def __init__(
        self,
        bucket: Bucket | None = None,
        *,
        faults: Callable[[Call], Fault | None] | None = None,
        page_size: int = PAGE_SIZE,
    ) -> None:
        self.bucket = bucket or Bucket()
        self.faults = faults
        self.page_size = page_size

    async def create(
        self, name: str, body: bytes, meta: dict[str, str], inline: bool
    ) -> Written | None:
        return await self._call(
            "create", name, lambda: self.bucket.create(name, body, meta, inline)
        )

    async def replace(
        self, name: str, generation: int, body: bytes, meta: dict[str, str], inline: bool
    ) -> Written | None:
        return await self._call(
            "replace", name, lambda: self.bucket.replace(name, generation, body, meta, inline)
        )

    async def read(self, name: str) -> Stored | None:
        fault = await self._begin("read", name)
        stored = await self._suffer(fault, "read", name, lambda: self.bucket.read(name))
        if stored is None or stored.body is None or fault is None or fault.kind != "truncated":
            return stored
        return _with_body(stored, stored.body[: fault.size])

    async def list(self, prefix: str, token: str | None, within: Within = EVERYTHING) -> Page:
        fault = await self._begin("list", prefix)
        limit = self.page_size
        if fault is not None and fault.kind == "short_page":
            limit = min(limit, fault.size)
        return await self._suffer(
            fault, "list", prefix, lambda: self.bucket.list(prefix, token, limit, within)
        )

    async def delete(self, name: str, generation: int) -> bool:
        return await self._call("delete", name, lambda: self.bucket.delete(name, generation))

    async def copy(self, source: str, generation: int, name: str) -> Written | None:
        return await self._call("copy", name, lambda: self.bucket.copy(source, generation, name))

    def now(self) -> float:
        return self.bucket.now()

    def land(self) -> int:
        """Carry out everything under way. Returns how many calls that were."""
        return self.bucket.land()

    async def aclose(self) -> None:
        """Nothing to close; the bucket stays."""

    async def _call(self, verb: Verb, name: str, apply: Callable[[], T]) -> T:
        return await self._suffer(await self._begin(verb, name), verb, name, apply)

    async def _begin(self, verb: Verb, name: str) -> Fault | None:
        nth = self.bucket.count(verb, name)
        await anyio.lowlevel.checkpoint()
        self.bucket.land(self.bucket.now())
        return None if self.faults is None else self.faults(Call(verb, name, nth))

    async def _suffer(
        self, fault: Fault | None, verb: Verb, name: str, apply: Callable[[], T]
    ) -> T:
        if fault is None:
            return apply()
        kind, seconds = fault.kind, fault.seconds
        if kind == "delayed":
            await anyio.sleep(seconds or 0)
        elif kind == "refused":
            raise StoreRefused(f"the memory store was told to refuse {verb} of {name!r}")
        elif kind in ("unsent", "busy", "late"):
            if kind == "late":
                due = None if seconds is None else self.bucket.now() + seconds
                self.bucket.land_later(apply, due)
            raise StoreUnavailable(f"the memory store was told not to answer {verb} of {name!r}")
        elif kind == "twice":
            apply()
        answer = apply()
        if kind == "reply_lost":
            raise StoreUnavailable(f"the memory store lost its answer to {verb} of {name!r}")
        if kind == "slow_reply":
            await anyio.sleep(seconds or 0)
        return answer


def steady_clock(system: System) -> Callable[[], float]:
    """The wall clock as it stands now, carried on by the boot clock: it never jumps."""
    offset = system.wall() - system.boot()
    return lambda: system.boot() + offset


def _copy(stored: Stored) -> Stored:
    """The same with metadata of its own, so that no caller changes the bucket's."""
    return _with_body(stored, stored.body)


def _with_body(stored: Stored, body: bytes | None) -> Stored:
    return Stored(
        stored.name, stored.generation, stored.created, stored.updated, dict(stored.meta), body
    )
