"""Outcomes of cheap steps, recorded together: the calls of `@step(durability="group")`.

Such an outcome is handed over once its body has ended, and then is in memory alone. Until it is
recorded nothing happens that may follow from it and that anybody else can see: no body of an
ordinary step begins, no record of another kind is written, nothing is published, the run does not
end or leave. So what dies with a process is what it alone knew, and its successor computes that
anew, perhaps to other values.

What has gathered is written as one object, `groups/<k>`, soon, and at once when something waits
for it. The groups of an instance are one chain: whoever writes the k-th knows all before it, so
no call has two outcomes in it. If the k-th is there already, a dead owner's group has landed
late: the run is listed and replayed, and what this owner has in memory is forgotten. For the same
reason one write is under way at a time: a group that follows from a lost one must not land.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import cached_property
from typing import Any

import anyio
import msgspec

from durable.errors import StoreError
from durable.protocol import names, records
from durable.protocol.records import Group, Step
from durable.runtime.closing import LateRecord, Stopped
from durable.runtime.gate import Gate
from durable.runtime.ownership import Ownership
from durable.runtime.riding import Riders
from durable.runtime.surroundings import Progress, Surroundings
from durable.store import Refused

PERIOD = 1.0  # seconds for which an outcome is in memory alone if nothing waits for it
STEPS = 500  # a group is written once it has so many steps,
BYTES = 128 * 1024  # or so much of values
FULL = 2  # times as much may gather while the group before is written


class Groups:
    """What has gathered in one execution. In its event loop.

    Args:
        last: the place in the chain up to which earlier owners came.
        spawn: starts a task of the run's own.
    """

    def __init__(
        self,
        *,
        around: Surroundings,
        ownership: Ownership,
        gate: Gate,
        riders: Riders,
        last: int,
        spawn: Callable[[Callable[[], Coroutine[Any, Any, None]]], None],
    ) -> None:
        self._around = around
        self._ownership = ownership
        self._gate = gate
        self._riders = riders
        self._last = last
        self._spawn = spawn
        self._gathered: list[Step] = []
        self._size = 0.0  # of what has gathered; 1 is enough for a group
        self._sending: Group | None = None
        self._writing = False  # whether the task that writes is there

    @cached_property
    def _recorded(self) -> anyio.Event:
        """Set once what has gathered is recorded."""
        return anyio.Event()

    @cached_property
    def _sent(self) -> anyio.Event:
        """Set once what is being sent is recorded."""
        return anyio.Event()

    @cached_property
    def _wanted(self) -> anyio.Event:
        """Set once what has gathered is to be written at once."""
        return anyio.Event()

    def add(self, step: Step) -> None:
        """This outcome, which has its order number, is to be recorded with others."""
        step.nonce = ""
        self._gathered.append(step)
        length = 0 if isinstance(step.value, msgspec.UnsetType) else len(bytes(step.value))
        self._size += 1 / STEPS + length / BYTES
        if self._size >= 1:
            self._wanted.set()
        if not self._writing:
            self._writing = True
            self._spawn(self._write_out)

    def pending(self) -> anyio.Event | None:
        """Set once all that was added so far is recorded, or the run is closed; None: it is."""
        if self._gathered:
            self._wanted.set()
            return self._recorded
        return self._sent if self._sending is not None else None

    @property
    def is_sending(self) -> bool:
        """Whether a record is on its way."""
        return self._sending is not None

    async def recorded(self) -> bool:
        """Waits until all that was added so far is recorded; False if the run is closed before."""
        event = self.pending()
        if event is None:
            return True
        await event.wait()
        return self._gate.closing is None

    def full(self) -> anyio.Event | None:
        """As `pending`, if so much has gathered that no more should; else None."""
        return self.pending() if self._size >= FULL else None

    def release(self) -> None:
        """The run is closed: every waiter goes on and finds that out."""
        if self._gathered or self._sending is not None:  # else nobody waits
            self._recorded.set()
            self._sent.set()

    async def write_rest(self) -> LateRecord | Stopped | None:
        """For the owner of a run that was closed; why it cannot be written, if it cannot."""
        while self._gathered or self._sending is not None:
            refused = await self._write()
            if refused is not None:
                return refused
        return None

    async def _write_out(self) -> None:
        while self._gathered:
            with anyio.move_on_after(PERIOD):
                await self._wanted.wait()
            if not self._gate.guard():
                return
            refused = await self._write()
            if refused is not None:
                self._gate.close(refused)
                return
        self._writing = False

    async def _write(self) -> LateRecord | Stopped | None:
        """Write what has gathered, or once more what was interrupted: twice is as once."""
        group = self._sending = self._sending or self._next()
        owner = self._ownership
        if not self._around.trusted():
            return Stopped("lease")
        name = names.group(owner.run_id, owner.instance, group.k)
        body = records.encode(group)
        try:
            written = await self._around.store.create(name, body, nonce=group.nonce)
        except StoreError as e:
            return Stopped("store", error=e)
        if isinstance(written, Refused):
            return LateRecord(group.steps[0].path)
        if not self._around.trusted():
            return Stopped("lease")  # it may have landed late: its successor knows where it stands
        if self._sending is group:
            self._acknowledged(group)
        return None

    def _next(self) -> Group:
        group = Group(
            k=self._last + 1, epoch=self._ownership.epoch, nonce=self._around.system.token(),
            time=self._around.store.now(), steps=self._gathered,
        )  # fmt: skip
        self._riders.board(group.steps[0])
        self._sent, self._recorded = self._recorded, anyio.Event()
        self._gathered, self._size, self._wanted = [], 0.0, anyio.Event()
        return group

    def _acknowledged(self, group: Group) -> None:
        self._sending, self._last = None, group.k
        self._riders.arrived(group.steps[0])
        self._around.recorded(self._ownership.run_id)
        if self._around.observe is not None:
            for step in group.steps:
                told = Progress.of("record", step.path, step.name, step)
                self._around.observe(self._ownership.run_id, told)
        self._sent.set()
