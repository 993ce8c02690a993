"""The end of a run: its outcome is recorded, then what an ended run still owes is done.

Each part is idempotent, and redone by whoever takes the marker of an ended run.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from durable.protocol import moments, names, records
from durable.protocol.queues import DEBOUNCE_PATH
from durable.protocol.records import History, Result, Status, Wait
from durable.protocol.singletons import ending
from durable.runtime import admission, keys, singletons, timers
from durable.runtime.admission import Turned
from durable.runtime.branches import map_in
from durable.runtime.children import cancel_open, owned_in, unsure_in, wake_parent
from durable.runtime.closing import Finished
from durable.runtime.custody import Custody
from durable.runtime.facts import Facts, decode_result, load
from durable.runtime.flags import unflag
from durable.store import Refused

HINTS_AT_ONCE = 16  # timer hints deleted side by side


def of_finished(finished: Finished, epoch: int) -> Result:
    """What is to be recorded of a function that came to its end."""
    ended: Status = "completed" if finished.failure is None else "failed"
    return Result(
        status="cancelled" if finished.cancelled else ended, nonce="", epoch=epoch, time=0.0,
        value=finished.value, failure=finished.failure,
    )  # fmt: skip


def of_turned(turned: Turned) -> Result:
    """What is to be recorded of a run whose code never began."""
    ended: Status = "completed" if turned.failure is None else "failed"
    return Result(
        status="cancelled" if turned.cancelled else ended, nonce="", epoch=1, time=0.0,
        failure=turned.failure, skipped=turned.skipped, joined=turned.joined,
    )  # fmt: skip


async def record(custody: Custody, facts: Facts, result: Result) -> Result:
    """Record the outcome; the one that counts is returned, which may be an earlier owner's."""
    result = msgspec.structs.replace(result, nonce=custody.token(), time=custody.now())
    name = names.result(custody.run, facts.start.instance)
    written = await custody.store.create(name, records.encode(result), nonce=result.nonce)
    if isinstance(written, Refused) and written.current is not None:
        return decode_result(written.current)
    return result


async def settle(custody: Custody, facts: Facts, result: Result) -> None:
    """Do what an ended run still owes; its marker goes last, and is not waited for."""
    start, store, run = facts.start, custody.store, custody.run
    entry = History.of(run, start, result, why=ending(result), nonce=custody.token())
    name = names.history(moments.stamp(result.time), run)
    await store.create(name, records.encode(entry), nonce=entry.nonce)
    if start.parent is not None:
        await wake_parent(store, start.parent)
    await _cancel_children(custody, facts)
    if custody.held.marker.flagged or not facts.fresh:
        await unflag(store, start.queue, run)
    await custody.give_up_place(start)
    waited = await singletons.end(store, run, start, admission.lock_wait(facts))
    await keys.end(store, run, start)
    delete_marker(custody, _hints(custody, facts, waited))


async def _cancel_children(custody: Custody, facts: Facts) -> None:
    children = None if custody.execution is None else custody.execution.offspring
    if children is None and not facts.steps:
        return
    owned, instance = owned_in(facts.steps), facts.start.instance
    unsure = unsure_in(custody.run, instance, facts.steps)
    if children is not None:
        owned = {
            run: child
            for run, child in {**owned, **children.owned}.items()
            if run not in children.ended
        }
        unsure |= children.unsure
    await cancel_open(custody.store, custody.run, instance, owned, unsure)


def _hints(custody: Custody, facts: Facts, waited: Wait | None) -> list[str]:
    """Names of the timer hints that the run may have, by path and deadline of their waits."""
    start = facts.start
    waits = [] if facts.fresh else facts.waiting()
    if waited is not None:
        waits.append(waited)
    places: list[tuple[str, float | None]] = [(w.path, w.due) for w in waits if w.due is not None]
    if not facts.fresh:
        if start.is_collecting and start.debounce is not None:  # cancelled before its time
            places.append((DEBOUNCE_PATH, start.debounce.due))
        places.append(("", None))
        if start.deadline:
            places.append(("", start.deadline))
    return [timers.name_of(custody.run, start.instance, path, due) for path, due in places]


def delete_marker(custody: Custody, hints: Sequence[str] = ()) -> None:
    """Not waited for: deletes of one name are limited to one a second in a bucket.

    Args:
        hints: timer hints that go first. Without the marker nobody would come back for them.
    """

    async def delete_hint(name: str) -> None:
        await timers.delete(custody.store, custody.held.marker, name)

    async def has_begun_anew() -> bool:
        facts = await load(custody.store, custody.run)
        return facts is not None and facts.result is None and not facts.start.tombstone

    async def delete() -> None:
        if hints:  # a task group has its price
            await map_in(None, delete_hint, hints, HINTS_AT_ONCE)
        if not await custody.let_go(has_begun_anew):
            await custody.give_back()

    custody.last = delete
