"""Asking a run to cancel: the fact first, then a wake-up for whoever holds it."""

from __future__ import annotations

from durable.protocol import names, records
from durable.protocol.records import Cancel, Start
from durable.runtime import markers
from durable.runtime.facts import read_cancel
from durable.store import Refused, Store


async def cancel(store: Store, run: str, start: Start, reason: str = "") -> None:
    """Ask for the instance that `start` names; asked again, it is the same request."""
    await note(store, run, start.instance, reason)
    # Also if it was asked for before: whoever asked may have come no further.
    await markers.wake(store, run, start, nonce=store.system.token)


async def note(store: Store, run: str, instance: str, reason: str) -> Cancel:
    """The request alone, for whoever holds the run; the first that was made counts.

    Raises:
        CorruptFact: something else is in its place.
    """
    asked = Cancel(nonce=store.system.token(), time=store.now(), reason=reason)
    name = names.cancel(run, instance)
    written = await store.create(name, records.encode(asked), nonce=asked.nonce)
    earlier = await read_cancel(store, run, instance) if isinstance(written, Refused) else None
    return earlier or asked


def parent_over(parent: str) -> str:
    """Why an owned child is cancelled."""
    return f"its parent {parent!r} is over"
