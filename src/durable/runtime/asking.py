"""Asking a run to cancel: the fact first, then a wake-up for whoever holds it."""

from __future__ import annotations

from durable.protocol import names, records
from durable.protocol.records import Cancel, Start
from durable.runtime import markers
from durable.store import Store


async def cancel(store: Store, run: str, start: Start, reason: str = "") -> None:
    """Ask for the instance that `start` names; asked again, it is the same request."""
    asked = Cancel(nonce=store.system.token(), time=store.now(), reason=reason)
    name = names.cancel(run, start.instance)
    await store.create(name, records.encode(asked), nonce=asked.nonce)
    # Also if it was asked for before: whoever asked may have come no further.
    await markers.wake(store, run, start, nonce=store.system.token)
