"""How a run that is not over leaves its worker: a hint says where it stands, its marker goes.

A run is parked until a wait is due or for a human, or stands in line for a slot. Whoever wakes it
in the meantime touches the marker: then it does not leave, or is left to the next who looks.
"""

from __future__ import annotations

import logging

from durable.protocol import names, records
from durable.protocol.queues import SLOT_PATH
from durable.protocol.records import Epoch, Wait
from durable.runtime import markers, timers
from durable.runtime.closing import Attention, Parked
from durable.runtime.custody import Custody
from durable.runtime.facts import Facts
from durable.runtime.flags import flag

log = logging.getLogger("durable")


async def park(custody: Custody, facts: Facts, parked: Parked) -> bool:
    """All that the run does is to wait; False: somebody woke it meanwhile, and it goes on here."""
    hint = timers.name_of(custody.run, facts.start.instance, parked.path, parked.due)
    if custody.held.marker.timer != hint and timers.is_past(custody.held.marker, custody.now()):
        custody.drop_timer()  # it was of a wait that a decision has closed
    if custody.execution is not None:
        await custody.execution.publishing.flush()
    await timers.put(custody.store, custody.held.marker, facts.start.instance, parked)
    if custody.place is not None and not custody.place.slots.settings.keep_slot:
        await custody.give_up_place(facts.start, stays=True)
    return await custody.let_go_untouched()


async def stand_in_line(custody: Custody, facts: Facts) -> bool:
    """Whoever dispatches the queue wakes the run once it has a slot; False as of `park`."""
    if facts.fresh:
        # A marker may only go once a fact other than `start` is there.
        queue, token, now = facts.start.queue, custody.token(), custody.now()
        wait = Wait(SLOT_PATH, "slot", queue, 0, token, now)
        name = names.wait(custody.run, facts.start.instance, SLOT_PATH)
        await custody.store.create(name, records.encode(wait), nonce=wait.nonce)
    return await custody.let_go_untouched()


async def ask_for_attention(custody: Custody, facts: Facts | None, attention: Attention) -> None:
    """The run needs a human or other code: say so, then let the marker go."""
    store, marker = custody.store, custody.held.marker
    log.warning("run %r needs attention: %s", custody.run, attention.message)
    if facts is not None and facts.fresh:
        # A marker may only go once a fact other than `start` is there.
        claim = Epoch(1, custody.worker, custody.label, "wake", custody.token(), custody.now())
        name = names.epoch(custody.run, facts.start.instance, 1)
        await store.create(name, records.encode(claim), nonce=claim.nonce)
    custody.drop_timer()  # else it would wake the run for the same trouble
    if facts is not None:
        await custody.give_up_place(facts.start, stays=True)
    await flag(
        store, marker, attention, version=custody.version, now=custody.now(), token=custody.token()
    )
    if not await custody.let_go_untouched():
        await custody.give_back()  # somebody woke it for other code meanwhile


async def send_home(custody: Custody, facts: Facts) -> None:
    """The marker stands in another queue than the run's own: one marker is enough."""
    await markers.wake(custody.store, custody.run, facts.start, nonce=custody.token)

    async def nothing() -> bool:
        return False

    await markers.let_go(custody.store, custody.held, nothing)
