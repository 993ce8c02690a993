"""Cancellations by user code that arrive while a call must not be interrupted: put off.

A call whose outcome is on its way into the record returns it, whatever happens meanwhile. If its
strand was cancelled then (native asyncio cancellation pierces anyio's shields), the strand owes
the cancellation: its next durable call raises it, unless whoever cancelled has taken it back.
"""

from __future__ import annotations

import anyio

from durable.runtime.gate import Gate
from durable.runtime.scopes import Scope
from durable.runtime.turns import Requests, cancel_requests, cancellation, strand, turn


class Cancellations:
    """Those that the strands of one execution owe.

    Attributes:
        owed: by strand; most often empty, and then nothing of it need be awaited.
    """

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self.owed: dict[int, Requests] = {}

    def put_off(self) -> None:
        """This strand was cancelled in a call that will return: it owes the cancellation."""
        requests = cancel_requests()
        if requests is not None:
            self.owed[strand()] = requests

    async def raise_owed(self) -> None:
        """Raise the cancellation that this strand has put off, if it still stands."""
        owed = self.owed.pop(strand(), None)
        if owed is not None and not owed.taken_back():
            raise await cancellation()

    def forget_taken_back(self) -> None:
        """Asked whenever the run moves: a later cancellation would hide that it was taken back."""
        for owing, requests in list(self.owed.items()):
            if requests.taken_back():
                del self.owed[owing]

    async def wait(self, event: anyio.Event, branch: Scope) -> None:
        """Wait for the event, whatever user code cancels; ends early if the branch is closed."""
        while not event.is_set() and self._gate.is_open(branch):
            try:
                with self._gate.wait(branch, shield=True):
                    await event.wait()
            except anyio.get_cancelled_exc_class():
                self.put_off()

    async def let_tasks_begin(self) -> None:
        """Tasks that the run has created begin, as they did live while a body ran."""
        try:
            await turn()
        except anyio.get_cancelled_exc_class():
            self.put_off()
