"""Sixteen attempts at once, of which one may win: what every promise of durable stands on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

import anyio

from durable.doctor.findings import Finding
from durable.doctor.probe import Probe
from durable.doctor.together import together
from durable.errors import StoreError, StoreRefused, StoreUnavailable
from durable.store import Store, Written

RACERS = 16
_ATTEMPTS_MAX = 10  # of one deletion that is not answered

_OTHER_STORE = (
    "Use another store: gs:// at Google itself, or sqlite:///. Most emulators of Google Cloud "
    "Storage ignore preconditions; `python -m durable.testing.gcs` does not."
)


class _Race(NamedTuple):
    """What is raced for, and what comes of it if more than one can win."""

    check: str
    what: str
    harm: str

    def refused(self, said: str) -> Finding:
        return Finding(self.check, "refused", f"{self.what}: {said}", _OTHER_STORE)

    def ok(self) -> Finding:
        return Finding(self.check, "ok", f"{self.what}: one won")


_CREATE = _Race(
    "create-only",
    f"{RACERS} creates of one name at once",
    "two workers would each believe that a run is theirs",
)
_SWAP = _Race(
    "compare-and-swap",
    f"{RACERS} replacements of one generation at once",
    "two workers would each believe that they hold a lease",
)
_DELETE = _Race(
    "conditional-delete",
    f"{RACERS} deletions of one generation at once",
    "what is deleted could be what has just been written",
)


async def try_races(probe: Probe) -> list[Finding]:
    """The three races, side by side.

    Raises:
        StoreError: the store does not answer any more, or refuses what it allowed before.
    """
    races = (_create_only, _swap, _conditional_delete)
    findings = []
    for outcome in await together([partial(race, probe) for race in races]):
        if isinstance(outcome, StoreError):
            raise outcome
        findings.append(outcome)
    return findings


async def _create_only(probe: Probe) -> Finding:
    store, name = probe.store, probe.name(_CREATE.check)

    async def attempt(racer: int) -> bool:
        nonce = store.system.token()
        return isinstance(await store.create(name, _body(racer), nonce=nonce), Written)

    return await _judged(_CREATE, store, name, await _race(attempt))


async def _swap(probe: Probe) -> Finding:
    store, name = probe.store, probe.name(_SWAP.check)
    generation = await _created(store, name)

    async def attempt(racer: int) -> bool:
        nonce = store.system.token()
        written = await store.replace(name, generation, _body(racer), nonce=nonce)
        return isinstance(written, Written)

    return await _judged(_SWAP, store, name, await _race(attempt))


async def _conditional_delete(probe: Probe) -> Finding:
    store, name = probe.store, probe.name(_DELETE.check)
    older = await _created(store, name)
    newer = await store.replace(name, older, b"{}", nonce=store.system.token())
    if not isinstance(newer, Written):
        return _DELETE.refused("the object changed by itself")
    if await store.delete(name, older):
        return _DELETE.refused(f"an older generation could be deleted, so {_DELETE.harm}")
    won = await _race(lambda _racer: _deleted(store, name, newer.generation))
    if len(won) > 1:
        return _DELETE.refused(f"{len(won)} won, so {_DELETE.harm}")
    if await store.read(name) is not None:
        return _DELETE.refused("it is still there")
    if not won:
        said = f"{_DELETE.what}: it is gone; the answer that said so was lost"
        return Finding(_DELETE.check, "note", said)
    return _DELETE.ok()


async def _race(attempt: Callable[[int], Awaitable[bool]]) -> list[int]:
    """Who won, of all racers at once.

    Raises:
        StoreError: of an attempt that ended so.
    """
    outcomes = await together([partial(attempt, racer) for racer in range(RACERS)])
    won = [racer for racer, outcome in enumerate(outcomes) if outcome is True]
    errors = [outcome for outcome in outcomes if isinstance(outcome, StoreError)]
    if errors and len(won) <= 1:  # with two winners nothing else matters
        raise errors[0]
    return won


async def _judged(race: _Race, store: Store, name: str, won: list[int]) -> Finding:
    """One winner, and it is what stands there."""
    if len(won) != 1:
        return race.refused(f"{len(won)} won, so {race.harm}")
    stored = await store.read(name)
    if stored is None or stored.body != _body(won[0]):
        return race.refused("one won, but what stands there is another one's")
    return race.ok()


async def _created(store: Store, name: str) -> int:
    """A new object's generation."""
    written = await store.create(name, b"{}", nonce=store.system.token())
    if not isinstance(written, Written):
        raise StoreRefused(f"the new name {name!r} is refused as if it were taken")
    return written.generation


async def _deleted(store: Store, name: str, generation: int) -> bool:
    """Whether this very attempt deleted it; `Store.delete` says only whether it is gone."""
    for _ in range(_ATTEMPTS_MAX - 1):
        try:
            return await store.backend.delete(name, generation)
        except StoreUnavailable:
            await anyio.sleep(store.pace.write / 2)
    return await store.backend.delete(name, generation)


def _body(racer: int) -> bytes:
    return b"%d" % racer
