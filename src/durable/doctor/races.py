"""Sixteen attempts at once, of which one may win: what every promise of durable stands on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from durable.doctor.findings import Finding
from durable.doctor.probe import Probe
from durable.errors import StoreError, StoreRefused, StoreUnavailable
from durable.store import Store, Written

RACERS = 16
_ATTEMPTS_MAX = 10  # of one deletion that is not answered
_PAUSE = 0.5  # seconds between them; GCS takes one mutation of an object per second

_OTHER_STORE = (
    "Use another store: gs:// at Google itself, or sqlite:///. Most emulators of Google Cloud "
    "Storage ignore preconditions; `python -m durable.testing.gcs` does not."
)


async def try_races(probe: Probe) -> list[Finding]:
    """The three races.

    Raises:
        StoreError: the store does not answer any more, or refuses what it allowed before.
    """
    return [await _create_only(probe), await _swap(probe), await _conditional_delete(probe)]


async def _create_only(probe: Probe) -> Finding:
    store, name = probe.store, probe.name("create-only")

    async def attempt(racer: int) -> bool:
        nonce = store.system.token()
        return isinstance(await store.create(name, _body(racer), nonce=nonce), Written)

    won = await _race(attempt)
    return await _judged(
        probe, "create-only", f"{RACERS} creates of one name", name, won,
        "two workers would each believe that a run is theirs",
    )  # fmt: skip


async def _swap(probe: Probe) -> Finding:
    store, name = probe.store, probe.name("compare-and-swap")
    generation = await _created(store, name)

    async def attempt(racer: int) -> bool:
        nonce = store.system.token()
        written = await store.replace(name, generation, _body(racer), nonce=nonce)
        return isinstance(written, Written)

    won = await _race(attempt)
    return await _judged(
        probe, "compare-and-swap", f"{RACERS} replacements of one generation", name, won,
        "two workers would each believe that they hold a lease",
    )  # fmt: skip


async def _conditional_delete(probe: Probe) -> Finding:
    store, name = probe.store, probe.name("conditional-delete")
    stale = await _created(store, name)
    written = await store.replace(name, stale, b"{}", nonce=store.system.token())
    check, generation = "conditional-delete", written.generation if _is_ours(written) else stale
    if await store.delete(name, stale):
        found = "a deletion of an older generation deleted what had replaced it"
        return Finding(check, "refused", found, _OTHER_STORE)

    async def attempt(_racer: int) -> bool:
        return await _deleted(store, name, generation)

    won = await _race(attempt)
    what = f"{RACERS} deletions of one generation at once"
    if len(won) > 1 or await store.read(name) is not None:
        found = f"{what}: {len(won)} were told that they deleted it"
        return Finding(check, "refused", found, _OTHER_STORE)
    if not won:
        return Finding(check, "note", f"{what}: it is gone, but the answer that said so was lost")
    return Finding(check, "ok", f"{what}: one won")
