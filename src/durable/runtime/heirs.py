"""A child's id that is there already, because its parent was retried or restarted.

Ids that are made of the parent's instance are new with each instance. One that was given to the
child is not: the run that has it may be the child of the same call of an earlier instance.
"""

from __future__ import annotations

from durable.errors import Conflict
from durable.protocol import names, records
from durable.protocol.records import Start
from durable.runtime import asking, markers
from durable.runtime.facts import decode_start, read_start
from durable.store import Refused, Store, Stored


async def in_place_of(store: Store, stored: Stored, start: Start, run: str) -> Start | None:
    """The `start` that counts for this child; None: wait for the end of the run that is there.

    A detached child that goes on is the child again. One that was owned is cancelled, and cleans
    up: once it is over, ours takes its place.

    Args:
        stored: the `start` that is there.
        start: the one that was to be written, with its parent.

    Raises:
        Conflict: the run that is there is none of this parent's.
        CorruptFact: it cannot be read.
    """
    there = decode_start(stored)
    of, parent = there.parent, start.parent
    if of == parent:
        return there
    if of is None or parent is None or (of.run, of.path) != (parent.run, parent.path):
        raise _a_stranger(run, start)
    over = await store.read(names.result(run, there.instance)) is not None
    # After the child's: then whoever has replaced our own instance meanwhile is seen here, or
    # has changed the child's.
    ours = await read_start(store, parent.run)
    if ours is None or ours.tombstone or ours.instance != parent.instance:
        raise _a_stranger(run, start)
    if of.instance == parent.instance:
        return there  # a person has let it go on by itself
    if over:
        return await _replaced(store, stored, start, run)
    if of.owned:
        await asking.cancel(store, run, there, asking.parent_over(parent.run))
        return None
    if (there.workflow, bytes(there.input)) != (start.workflow, bytes(start.input)):
        raise Conflict(
            f"run {run!r}, which an earlier instance of run {parent.run!r} started, still goes "
            "on, and is of another workflow or has another input than is asked for now",
            hint="cancel it, then retry the parent",
            run=run,
        )
    return there


async def _replaced(store: Store, stored: Stored, start: Start, run: str) -> Start:
    written = await store.replace(
        stored.name, stored.generation, records.encode(start),
        nonce=start.nonce, earlier=stored.meta.get("nonce", ""),
    )  # fmt: skip
    if not isinstance(written, Refused):
        await markers.wake(store, run, start, nonce=store.system.token)
        return start
    there = None if written.current is None else decode_start(written.current)
    if there is None or there.parent != start.parent:
        raise _a_stranger(run, start)
    return there  # by another owner of this very instance


def _a_stranger(run: str, start: Start) -> Conflict:
    assert start.parent is not None
    return Conflict(
        f"run {run!r} exists and was not started by {start.parent.path!r} of run "
        f"{start.parent.run!r}, so that run cannot have it as a child",
        hint="leave the id out: it is then made of the parent's",
        run=run,
    )
