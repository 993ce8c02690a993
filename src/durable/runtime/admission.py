"""What stands between a run and its code: a quiet time, the lock of a singleton, then a slot.

Asked after the facts are read and before any of the run's code goes on. The answer is a value:
the run may go on, it is over without having begun, or it waits and needs no worker.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec

from durable.errors import RunCancelled, SingletonTaken
from durable.protocol import failures, moments, singletons
from durable.protocol.failures import Failure
from durable.protocol.queues import DEBOUNCE_PATH, SLOT_PATH
from durable.protocol.records import Holder, LockRecord, LockRequest, Start, Wait
from durable.protocol.singletons import LOCK_PATH
from durable.runtime import debouncing
from durable.runtime import singletons as locks
from durable.runtime.cancelling import message
from durable.runtime.closing import Parked
from durable.runtime.debouncing import Changed
from durable.runtime.facts import Facts
from durable.runtime.lines import Lines
from durable.runtime.slots import HeldSlot, Slots
from durable.store import Store


class Admitted(msgspec.Struct, frozen=True):
    """Its code may go on.

    Attributes:
        waited: for the lock, until now; due when the run would have been woken for it.
        place: under this slot of its queue.
    """

    waited: Wait | None = None
    place: Place | None = None


class Place(msgspec.Struct, frozen=True):
    """A run's place among those of a limited queue that go on."""

    slots: Slots
    held: HeldSlot


class Queued(msgspec.Struct, frozen=True):
    """It stands in line for a slot."""


class Turned(msgspec.Struct, frozen=True):
    """The run is over, and its code never began."""

    failure: Failure | None = None
    cancelled: bool = False
    skipped: Holder | None = None
    joined: Holder | None = None


PATHS = frozenset({DEBOUNCE_PATH, LOCK_PATH, SLOT_PATH})
"""Of the waits that are over once the run's code goes on; no outcome is recorded of them."""

Answer = Admitted | Turned | Parked | Queued | Changed


@dataclass
class Admission:
    """Asks for one run.

    Attributes:
        facts: of the run, as just read; a run that was held back gets the `start` that counts,
            and one that begins to wait for the lock gets that wait.
        lines: what is known of the queues.
        hint: the number of the slot that the run was woken for; below 0: none is known.
        clean: nothing that an earlier owner of the run has sent is under way.
    """

    store: Store
    run: str
    facts: Facts
    lines: Lines
    hint: int = -1
    clean: bool = False

    async def ask(self) -> Answer:
        """Whether the run's code may go on.

        Raises:
            CorruptFact: the lock is damaged.
        """
        held_back = await self._ask_for_quiet()
        if held_back is not None:
            return held_back
        answer = await self._ask_for_lock()
        if isinstance(answer, Admitted):
            return await self._ask_for_slot(answer)
        return answer

    @property
    def _begun(self) -> bool:
        """Whether an earlier owner has left anything of its code.

        What was copied from an older instance is nothing that an owner of this one has done.
        """
        facts, copied = self.facts, self.facts.copied
        epochs = {*facts.recorded_epochs(), *(claim.epoch for claim in facts.epochs)}
        return any(epoch > copied for epoch in epochs)

    def _cancelled(self) -> Turned:
        cancelled = RunCancelled(message(self.run, self.facts.cancel))
        return Turned(failures.from_exception(cancelled), cancelled=True)

    # -- the quiet time ---------------------------------------------------------------------------

    async def _ask_for_quiet(self) -> Turned | Parked | Changed | None:
        if not self.facts.start.is_collecting:
            return None
        if self.facts.cancel is not None:
            return self._cancelled()
        closed = await debouncing.close(self.store, self.run, self.facts.start)
        if not isinstance(closed, Start):
            return closed
        self.facts.start = closed
        return None

    # -- the slot ---------------------------------------------------------------------------------

    async def _ask_for_slot(self, admitted: Admitted) -> Answer:
        start = self.facts.start
        slots = await self.lines.slots(start.queue, asked=start.limited)
        if slots is None:
            return admitted
        if self.facts.cancel is not None:
            # It ends, and cleans up if it has begun: for that nobody has to wait.
            held = (await slots.all()).held(self.run, start.instance)
            if held is None:
                return admitted if self._begun else self._cancelled()
        else:
            held = await slots.admit(self.run, start, hint=self.hint, clean=self.clean)
        if held is None:
            return Queued()
        return Admitted(admitted.waited, Place(slots, held))

    # -- the lock ---------------------------------------------------------------------------------

    async def _ask_for_lock(self) -> Answer:
        request, start, facts = self.facts.start.lock, self.facts.start, self.facts
        if request is None:
            return Admitted()
        if facts.cancel is not None and not self._begun:
            if not await locks.is_mine(self.store, self.run, start, request):
                return self._cancelled()
        held = await locks.take(self.store, self.run, start, request)
        if held is None:
            return await self._admitted(lock_wait(facts))
        if self._begun and (request.ttl is not None or facts.cancel is not None):
            return Admitted()  # the ttl ran out, or a human released it: others have it now
        return await self._turned_away(request, held)

    async def _admitted(self, wait: Wait | None) -> Admitted:
        if wait is None:
            return Admitted()
        return Admitted(await locks.leave(self.store, self.run, self.facts.start, wait))

    async def _turned_away(self, request: LockRequest, held: LockRecord) -> Answer:
        holder = Holder(held.run, held.instance, held.since)
        match request.on_conflict:
            case "skip":
                return Turned(skipped=holder)
            case "join":
                return Turned(joined=holder)
            case "raise":
                return Turned(failures.from_exception(taken(self.run, held)))
        return await self._wait(request, held)

    async def _wait(self, request: LockRequest, held: LockRecord) -> Answer:
        """Stand in line, then look once more: the holder may have ended in between."""
        store, run, start = self.store, self.run, self.facts.start
        wait = lock_wait(self.facts)
        if wait is None:
            wait = await locks.begin_wait(store, run, start, request)
            self.facts.waits.append(wait)  # if it ends right now, it leaves the line all the same
        expected = _until(held, wait, request, store.now())
        await locks.stand(store, run, start, wait, expected)
        if request.on_conflict == "replace":
            await locks.replace_holder(store, held, run, start)
        again = await locks.take(store, run, start, request)
        if again is None:
            return await self._admitted(wait)
        if wait.due is not None and wait.due <= store.now():
            error = taken(run, again, waited=wait.due - wait.time)
            return Turned(failures.from_exception(error))
        due = _until(again, wait, request, store.now())
        if due != expected:
            await locks.stand(store, run, start, wait, due)
        return Parked(LOCK_PATH, due, f"for lock {again.key!r}, which run {again.run!r} holds")


def lock_wait(facts: Facts) -> Wait | None:
    """The wait for the lock, if there ever was one."""
    return next((wait for wait in facts.waits if wait.path == LOCK_PATH), None)


def _until(held: LockRecord, wait: Wait, request: LockRequest, now: float) -> float | None:
    """When a run that waits looks again although nobody has woken it; None: never."""
    due = math.inf if wait.due is None else wait.due
    asks = singletons.next_attempt(request, wait.time, now)
    ends = min(singletons.expires(held), due, asks)
    return None if ends == math.inf else ends


def taken(run: str, held: LockRecord, *, waited: float | None = None) -> SingletonTaken:
    """The error of a run that cannot have the lock."""
    since = moments.second(round(held.since))
    after = "" if waited is None else f" after waiting {waited:g} s"
    return SingletonTaken(
        f"run {run!r} cannot have the lock {held.key!r}{after}: run {held.run!r} of workflow "
        f"{held.workflow!r} has it since {since}",
        key=held.key,
        holder=held.run,
        since=held.since,
    )
