"""A run that this worker holds: what all share who open it, carry it, finish it or let it go.

`opening` finds out what is recorded and claims the epoch, `runner` carries the run, `finishing`
does what an ended run still owes, `leaving` lets go of one that is not over.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Literal

from durable.protocol.records import Start, Wait
from durable.runtime import markers, timers
from durable.runtime.admission import Place
from durable.runtime.execution import Execution
from durable.runtime.facts import Facts
from durable.runtime.lines import Lines
from durable.runtime.markers import Held
from durable.runtime.slots import HeldSlot, Slots
from durable.runtime.solitude import Solitude
from durable.runtime.surroundings import Surroundings
from durable.store import Store

Work = Callable[[], Coroutine[Any, Any, object]]
Why = Literal["wake", "takeover", "drain", "late"]


@dataclass(kw_only=True)
class Custody:
    """One held run.

    Attributes:
        worker: the id under which the worker holds its lease.
        version: the code version that stands in attention hints.
        lines: what the worker knows of its queues.
        spawn: starts a task of the worker.
        why: what the next epoch is claimed for.
        execution: of the present epoch, once it has begun.
        place: its slot, if its queue is limited and it has one.
        touched: whether somebody touched the marker and no look has answered it yet.
        last: what remains to be done once the run is over and others were told.
    """

    around: Surroundings
    worker: str
    label: str
    version: str
    solitude: Solitude
    lines: Lines
    spawn: Callable[[Work], object]
    held: Held
    why: Why
    execution: Execution | None = None
    place: Place | None = None
    touched: bool = False
    last: Work | None = None
    run: str = field(init=False)
    store: Store = field(init=False)

    def __post_init__(self) -> None:
        self.run = self.held.marker.run
        self.store = self.around.store

    def now(self) -> float:
        return self.around.store.now()

    def token(self) -> str:
        return self.around.system.token()

    def over(self) -> None:
        """Nothing remains to be done: what it keeps refers to it."""
        self.execution = self.last = None

    # -- timer hints ------------------------------------------------------------------------------

    def passed(self, facts: Facts, wait: Wait) -> None:
        """A wait that an earlier owner began is over: nobody needs to wake the run for it."""
        if wait.due is not None:
            self.drop(timers.name_of(self.run, facts.start.instance, wait.path, wait.due))

    def drop_unneeded(self, facts: Facts, *, keep: str = "") -> None:
        """Delete the hint that the marker names, unless a wait that goes on needs it.

        Args:
            keep: the name of the hint under which the run is about to be parked.
        """
        marker = self.held.marker
        if marker.timer and marker.timer != keep:
            waiting = [] if facts.result else facts.waiting()
            if timers.unneeded(marker, facts.start.instance, waiting):
                self.drop_timer()

    def drop_timer(self) -> None:
        """Delete the hint that the marker names, if it names one."""
        if self.held.marker.timer:
            self.drop(self.held.marker.timer)

    def drop(self, name: str) -> None:
        """Delete that hint, in a task of its own."""
        store, marker = self.store, self.held.marker
        self.spawn(lambda: timers.drop(store, marker, name))

    # -- the slot ---------------------------------------------------------------------------------

    async def give_up_place(self, start: Start, *, stays: bool = False) -> None:
        """Others may go on: hand the slot to the next, or whatever slot names this instance.

        Under the limits that hold now: they may have changed, and the queue may be paused.

        Args:
            stays: the run is not over, so nobody else would give back a second slot of its.
        """
        place, self.place = self.place, None
        asked = start.limited or place is not None
        slots = await self.lines.slots(start.queue, asked=asked)
        if slots is None:
            return
        held = place.held if place is not None else await self._listed_slot(slots, start)
        while held is not None:
            await slots.give_up(held, by=self.run)
            # Two may each have given the run one, and neither was to know. Of a run that is over
            # a dispatcher gives the other back.
            held = await self._listed_slot(slots, start) if stays else None

    async def _listed_slot(self, slots: Slots, start: Start) -> HeldSlot | None:
        """The slot that names this instance, if it is ours to give up.

        Once the lease has run out, or somebody was told to take the run, it may go on elsewhere,
        under that very slot, which its new owner has written anew: after it took the marker.
        """
        listed = (await slots.all()).held(self.run, start.instance)
        if listed is None or not self.around.trusted():
            return None
        marker = await self.store.read(self.held.name)
        return listed if markers.names_take(marker, self.held) else None

    # -- the marker -------------------------------------------------------------------------------

    async def let_go(self, look: Callable[[], Awaitable[bool]]) -> bool:
        """As `markers.let_go`; a touch that we know of already calls for a look first."""
        execution = self.execution
        looked = not self.touched and (execution is None or execution.looking.up_to_date)
        if not looked and await look():
            return False
        return await markers.let_go(self.store, self.held, look)

    async def let_go_untouched(self) -> bool:
        """Let go unless somebody touched the marker since we last looked."""

        async def touched() -> bool:
            return True

        return await self.let_go(touched)

    async def give_back(self, why: Literal["drain", "takeover"] = "drain") -> None:
        """Leave the run to whoever takes its marker next."""
        await markers.give_back(self.store, self.held, why=why, nonce=self.token)
