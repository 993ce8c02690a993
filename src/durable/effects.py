"""Outside effects that take place once for a key, whoever asks: claim, do, record.

Who begins an effect claims its key first; only the claim's owner does it, and records what came
of it. Whoever asks later gets the recorded value, and nothing is done again. A claim without a
record means that a process died in between, or is at it still: nobody can tell, so nothing is
done and OutcomeUnknown is raised.

An effect that raised has not taken place, as far as it says itself: the next to ask tries again,
under the next number. Nothing here is ever overwritten or deleted.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio.to_thread
import msgspec

from durable.catalog import decode_record
from durable.errors import Conflict, OutcomeUnknown
from durable.protocol import failures, primitives, records, values
from durable.protocol.primitives import EffectBegun, EffectEnded
from durable.store import Store, Stored, Written

T = TypeVar("T")


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """One key, in one store.

    Attributes:
        label: of whoever asks, for people.
    """

    store: Store
    key: str
    label: str

    async def once(self, fn: Callable[[], Awaitable[T] | T]) -> T:
        """What the effect came to: now, or when it took place.

        Args:
            fn: does it; a plain function is called in a thread.

        Raises:
            OutcomeUnknown: it began, and nobody knows what became of it.
            InvalidId: the key cannot be part of an object's name.
            Exception: what the effect raised.
        """
        attempt = 1
        while not await self._begin(attempt):
            found = await self._last()
            ended = found.ended
            if ended is None:
                raise self._unknown(found)
            if ended.failure is None:
                return typing.cast("T", self._value(ended, fn))
            attempt = found.attempt + 1
        return await self._do(attempt, fn)

    async def settle(self, value: object, *, happened: bool) -> None:
        """Say what became of an effect of which nobody knows.

        Raises:
            Conflict: nothing is open.
            InvalidArguments: the value cannot be stored.
        """
        raw = values.encode_argument(value, f"the value of effect {self.key!r}")
        found = await self._last()
        if not found.attempt or found.ended is not None:
            raise Conflict(f"effect {self.key!r} is not under way: there is nothing to settle")
        record = self._ended(found.attempt)
        record.by_hand = self.label
        if happened:
            record.value = raw
        else:
            error = OutcomeUnknown(f"{self.label} says that effect {self.key!r} did not take place")
            record.failure = failures.from_exception(error)
        if not await self._record(record):
            raise Conflict(f"effect {self.key!r} has come to an end meanwhile")

    # -- claim, do, record ------------------------------------------------------------------------

    async def _begin(self, attempt: int) -> bool:
        """Claim that try; False: somebody else has."""
        record = EffectBegun(
            self.key, attempt, self.store.system.token(), self.store.now(), self.label
        )
        name = primitives.effect_begun(self.key, attempt)
        written = await self.store.create(name, records.encode(record), nonce=record.nonce)
        return isinstance(written, Written)

    async def _do(self, attempt: int, fn: Callable[[], Awaitable[T] | T]) -> T:
        record = self._ended(attempt)
        try:
            value = await _called(fn)
        except Exception as e:
            record.failure = failures.from_exception(e)
            await self._record(record)
            raise
        try:
            raw, copy = values.encode_result(value, _returns(fn), name=self.key)
        except Exception:
            await self._record(record)  # it has taken place, though nobody will know its value
            raise
        record.value = msgspec.Raw(raw)
        await self._record(record)
        return typing.cast("T", copy)

    async def _record(self, record: EffectEnded) -> bool:
        """False: somebody has settled it by hand meanwhile."""
        record.time = self.store.now()
        name = primitives.effect_ended(self.key, record.attempt)
        written = await self.store.create(name, records.encode(record), nonce=record.nonce)
        return isinstance(written, Written)

    def _ended(self, attempt: int) -> EffectEnded:
        return EffectEnded(self.key, attempt, self.store.system.token(), self.store.now())

    # -- what is there ----------------------------------------------------------------------------

    async def _last(self) -> _Found:
        """The last try."""
        found = _Found()
        async for stored in self.store.list(primitives.effect_folder(self.key)):
            full = stored if stored.body is not None else await self.store.read(stored.name)
            if full is not None:
                found.add(full)
        return found

    def _value(self, ended: EffectEnded, fn: Callable[..., Any]) -> object:
        if isinstance(ended.value, msgspec.UnsetType):
            return None
        return values.decode(ended.value, _returns(fn))

    def _unknown(self, found: _Found) -> OutcomeUnknown:
        by = f" by {found.label}" if found.label else ""
        return OutcomeUnknown(
            f"effect {self.key!r} was begun{by} and its outcome was not recorded: it may be under "
            "way, have taken place, or not",
            hint="look at the outside system, then say so with `client.settle`",
        )


@dataclass
class _Found:
    """The last try of an effect; number 0: there is none."""

    attempt: int = 0
    label: str = ""
    ended: EffectEnded | None = None

    def add(self, stored: Stored) -> None:
        """In the order of names, in which `begun` comes before `ended`."""
        if stored.name.endswith("/begun"):
            begun = decode_record(EffectBegun, stored)
            self.attempt, self.label, self.ended = begun.attempt, begun.label, None
        else:
            self.ended = decode_record(EffectEnded, stored)


async def _called(fn: Callable[[], Awaitable[T] | T]) -> T:
    if inspect.iscoroutinefunction(_plain(fn)):
        return await typing.cast("Awaitable[T]", fn())
    return typing.cast("T", await anyio.to_thread.run_sync(fn))


def _returns(fn: Callable[..., Any]) -> object:
    try:
        return typing.get_type_hints(_plain(fn), include_extras=True).get("return")
    except (NameError, TypeError):
        return None


def _plain(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function under a step, a partial, a wrapper."""
    while True:
        inner = getattr(fn, "__wrapped__", None) or getattr(fn, "func", None)
        if inner is None:
            return fn
        fn = inner
