"""Starts with a dedup key: of the runs of a queue that carry one key, one goes on.

See `keyed`. A run carries its key until its outcome is recorded.
"""

from __future__ import annotations

from durable.protocol import names
from durable.protocol.records import Start
from durable.runtime.keyed import Key
from durable.store import Store


def key_of(start: Start) -> Key:
    """The key of a request that has one."""
    queue, key = start.queue, start.dedup_key

    def is_of(other: Start) -> bool:
        return (other.queue, other.dedup_key) == (queue, key)

    return Key(names.dedup_key(queue, key), is_of, _has_result)


async def _has_result(store: Store, run: str, start: Start) -> bool:
    return await store.read(names.result(run, start.instance)) is not None
