"""Singletons as a client meets them: a look before the start, and the outcome of who was skipped.

A look decides nothing: the run itself takes the lock, or does not. It only saves a run that would
end at once.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from durable.client.requests import Request
from durable.protocol.records import Holder, LockRecord
from durable.runtime import admission, singletons
from durable.store import Store


class Skipped(msgspec.Struct, frozen=True):
    """The outcome of a run that never began, because another run of its singleton went on.

    False as a condition.

    Attributes:
        holder: the id of that run.
        since: since when it held the lock, in seconds since the epoch by the store's clock.
    """

    holder: str
    since: float

    def __bool__(self) -> Literal[False]:
        return False


def of(holder: Holder) -> Skipped:
    """As it is recorded."""
    return Skipped(holder.run, holder.since)


async def in_the_way(store: Store, request: Request) -> LockRecord | None:
    """The run that this one is to join; None: start it.

    Raises:
        SingletonTaken: another goes on, and this one is to raise.
    """
    lock = request.start.lock
    if lock is None or lock.on_conflict not in {"raise", "join"} or request.start.is_collecting:
        return None
    held = await singletons.peek(store, lock.key)
    if held is None or held.run == request.run:
        return None
    if lock.on_conflict == "raise":
        raise admission.taken(request.run, held)
    return held
