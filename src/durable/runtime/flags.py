"""Attention hints: `attention/<queue>/<run>` says that a run waits for a human or other code."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container

import msgspec

from durable.protocol import names, records
from durable.protocol.records import Attention, Marker
from durable.runtime import closing, markers
from durable.runtime.facts import CorruptFact, read_start
from durable.runtime.reading import decoded, record
from durable.store import Refused, Store, Stored, Written

log = logging.getLogger("durable")

_decoder = msgspec.json.Decoder(Attention)


def decode(stored: Stored) -> Attention | None:
    """The record in a hint that came with its body; None if it is no hint."""
    return decoded(stored, _decoder)


async def read(store: Store, queue: str, run: str) -> Attention | None:
    """The run's hint, if it has one."""
    stored = await store.read(names.attention(queue, run))
    return None if stored is None else decode(stored)


async def flag(
    store: Store,
    marker: Marker,
    attention: closing.Attention,
    *,
    version: str,
    now: float,
    token: str,
) -> None:
    """Create the hint, or replace an older one; every code version that tried stays in it."""
    hint = Attention(
        run=marker.run, instance=marker.instance, workflow=marker.workflow,
        reason=attention.reason, message=attention.message, nonce=token, time=now,
        hint=attention.hint, path=attention.path, recorded=attention.recorded,
        asked=attention.asked, tried=[version], pin=marker.pin,
    )  # fmt: skip
    name = names.attention(marker.queue, marker.run)
    written: Written | Refused = await store.create(name, records.encode(hint), nonce=token)
    while isinstance(written, Refused):
        if written.current is None:
            written = await store.create(name, records.encode(hint), nonce=token)
            continue
        earlier = decode(written.current)
        hint.tried = sorted({version, *(earlier.tried if earlier is not None else ())})
        written = await _replace(store, written.current, hint)


async def unflag(store: Store, queue: str, run: str) -> None:
    """Remove the hint: the run is over."""
    stored = await store.read(names.attention(queue, run))
    if stored is not None:
        await store.delete(stored.name, stored.generation)


async def wake_flagged(
    store: Store,
    queue: str,
    *,
    version: str,
    serves: Callable[[str, str], bool],
    live: Container[str],
    token: Callable[[], str],
) -> tuple[int, bool]:
    """Wake the runs that wait for other code and have not been tried by this version.

    Parking again puts the version into the hint, so each version tries a run once. A run taken
    by a worker of an older version meanwhile is simply woken again. Runs in `live` have a
    marker already.

    Returns:
        How many were woken, and whether others may be to wake once their marker has gone.
    """
    woken, later = 0, False
    async for stored in store.list(names.attention_folder(queue)):
        hint = await record(store, stored, _decoder)
        if hint is None or version in hint.tried or not serves(hint.workflow, hint.pin):
            continue
        if hint.run in live:
            later = True
            continue
        try:
            start = await read_start(store, hint.run)
        except CorruptFact as e:
            log.warning("run %r cannot be woken: %s", hint.run, e)
            continue
        if start is not None:
            await markers.wake(store, hint.run, start, flagged=True, nonce=token)
            woken += 1
    return woken, later


async def _replace(store: Store, stored: Stored, hint: Attention) -> Written | Refused:
    return await store.replace(
        stored.name, stored.generation, records.encode(hint),
        nonce=hint.nonce, earlier=stored.meta.get("nonce", ""),
    )  # fmt: skip
