"""Which key a start carries, and so which run it gives: see `keyed`."""

from __future__ import annotations

from durable.protocol.records import Start
from durable.runtime import debouncing, deduplication, keyed, starting
from durable.runtime.keyed import Begin, Begun, Key
from durable.store import Store


def has_one(start: Start) -> bool:
    """Whether another run may be what such a start gives."""
    return bool(start.dedup_key) or start.is_collecting


async def start_with(
    store: Store, run: str, start: Start, *, begin: Begin = starting.start
) -> Begun:
    """Start the run, unless another carries its key.

    Args:
        begin: makes the run.

    Raises:
        CorruptFact: the claim of the key is damaged.
        StoreUnavailable: it may have started; ask again with the same key.
    """
    if start.dedup_key:
        return await keyed.start(store, run, start, deduplication.key_of(start), begin=begin)
    return await debouncing.start(store, run, start, begin=begin)


async def end(store: Store, run: str, start: Start) -> None:
    """The run is over: nothing says any more that it carries a key."""
    if (key := _key_of(start)) is not None:
        await keyed.end(store, run, key)


def _key_of(start: Start) -> Key | None:
    if start.dedup_key:
        return deduplication.key_of(start)
    return None if start.debounce is None else debouncing.key_of(start)
