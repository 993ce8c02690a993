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
    store, name, check = probe.store, probe.name("conditional-delete"), "conditional-delete"
    older = await _created(store, name)
    newer = await store.replace(name, older, b"{}", nonce=store.system.token())
    if not isinstance(newer, Written):
        return Finding(check, "refused", "an object changed by itself", _OTHER_STORE)
    if await store.delete(name, older):
        found = "a deletion of an older generation deleted the one that had replaced it"
        return Finding(check, "refused", found, _OTHER_STORE)

    async def attempt(_racer: int) -> bool:
        return await _deleted(store, name, newer.generation)

    won = await _race(attempt)
    what = f"{RACERS} deletions of one generation at once"
    if len(won) > 1 or await store.read(name) is not None:
        found = f"{what}: {len(won)} were told that they did it"
        return Finding(check, "refused", found, _OTHER_STORE)
    if not won:
        return Finding(check, "note", f"{what}: it is gone; the answer that said so was lost")
    return Finding(check, "ok", f"{what}: one won")


async def _race(attempt: Callable[[int], Awaitable[bool]]) -> list[int]:
    """Who won, of all racers at once.

    Raises:
        StoreError: of one whose attempt ended so.
    """
    won: list[int] = []
    errors: list[StoreError] = []

    async def run(racer: int) -> None:
        try:
            if await attempt(racer):
                won.append(racer)
        except StoreError as e:
            errors.append(e)

    async with anyio.create_task_group() as tasks:
        for racer in range(RACERS):
            tasks.start_soon(run, racer)
    if errors and len(won) <= 1:  # with two winners nothing else matters
        raise errors[0]
    return won


async def _judged(
    probe: Probe, check: str, what: str, name: str, won: list[int], harm: str
) -> Finding:
    """One winner, and it is what stands there."""
    if len(won) != 1:
        found = f"{what} at once: {len(won)} won, so {harm}"
        return Finding(check, "refused", found, _OTHER_STORE)
    stored = await probe.store.read(name)
    if stored is None or stored.body != _body(won[0]):
        found = f"{what} at once: one won, but another one's data stands there"
        return Finding(check, "refused", found, _OTHER_STORE)
    return Finding(check, "ok", f"{what} at once: one won")


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
            await anyio.sleep(_PAUSE)
    return await store.backend.delete(name, generation)


def _body(racer: int) -> bytes:
    return b"%d" % racer
