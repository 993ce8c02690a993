"""What competes for something is decided in one chain of claims, `takes/1`, `takes/2`, ...

Which wait gets an event, whether the event or the deadline came first, which branch of a select
won: whoever decides knows the takes before, chooses, and claims the next. If somebody else has
claimed it, a dead owner's decision has landed late: the run is listed and replayed.

Events are kept from the moment they are sent. Each wait gets the first of its name that none
has, in the order (creation time, key) as first listed. An event taken by a wait that a decision
closed before it saw the event is free again.
"""

from __future__ import annotations

import heapq
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

import anyio
import msgspec

from durable.errors import InvalidEvent, StoreError
from durable.protocol import failures, names, values
from durable.protocol.records import Event, Step, Take
from durable.runtime.calls import Call
from durable.runtime.cancelling import OpenCall
from durable.runtime.closing import Stopped
from durable.runtime.performing import Performer
from durable.runtime.reading import record
from durable.runtime.scopes import Scope
from durable.runtime.wishes import ABANDONED, CANCELLED, Answer, Key, Wish
from durable.store import Stored

_event = msgspec.json.Decoder(Event)


class Inbox:
    """The decisions of one execution.

    Args:
        takes: the decisions so far.
        events: those sent so far, as listed.
        spawn: starts a task of the run's own.
        rests: called when no decision is under way any more.

    Attributes:
        busy: a decision is under way.
    """

    def __init__(
        self,
        performer: Performer,
        *,
        instance: str,
        takes: Iterable[Take],
        events: Iterable[Stored],
        spawn: Callable[[Callable[[], Coroutine[Any, Any, None]]], None],
        rests: Callable[[], None],
    ) -> None:
        self.busy = False
        self._performer = performer
        self._instance = instance
        self._spawn = spawn
        self._rests = rests
        self._wishes: list[Wish] = []
        self._known: dict[Key, Stored] = {}  # in the order in which events were first listed
        self._place: dict[Key, int] = {}  # in that order
        self._free: dict[str, list[tuple[int, Key]]] = {}  # heaps, by name
        self._taken: dict[Key, str] = {}  # by the wait at this path
        self._received: set[str] = set()  # paths of waits that saw their event
        self._k = 0
        self._stale = False
        self._claimed: anyio.Event | None = None  # while somebody waits for the next
        for take in sorted(takes, key=lambda take: take.k):
            self._k = take.k
            if take.event:
                self._taken[_event_name(take), take.event] = take.path
        self._listed(events)

    # -- deciding ---------------------------------------------------------------------------------

    async def decide(
        self,
        call: Call[Any],
        branch: Scope,
        stand: Callable[[Wish], Awaitable[None]],
        *,
        event: str | None = None,
    ) -> tuple[Step, object]:
        """The live course of a call whose outcome is a take.

        Args:
            call: the call.
            branch: where it was made.
            stand: returns once the wish is decided or has an answer; may be cancelled.
            event: see `Wish`.
        """
        performer = self._performer
        wish = Wish(call, branch)
        cancelled: BaseException | None = None
        try:
            with performer.gate.wait(branch, shield=False) as wait:
                await performer.start_turn(call, branch)
                if not performer.cancelling.covers(call):
                    performer.cancelling.open[call.path] = OpenCall(call, wait)
                    try:
                        wish.event = event
                        self._wishes.append(wish)
                        self._kick()
                        await stand(wish)
                    finally:
                        del performer.cancelling.open[call.path]
            await performer.gate.check_open(branch)
            if not wish.begun and performer.cancelling.covers(call):
                self._end(wish, CANCELLED)
        except anyio.get_cancelled_exc_class() as e:
            await performer.cancellations.let_tasks_begin()
            if not performer.gate.is_open(branch):
                self.withdraw(wish)
                raise
            cancelled = e
            self._interrupt(wish)
        except BaseException:
            self.withdraw(wish)
            raise
        step = await self._decided(wish)
        if step.outcome == "abandoned":
            assert cancelled is not None
            raise cancelled
        assert wish.answer is not None
        return step, wish.answer.copy

    def settle(self, wish: Wish, answer: Answer) -> None:
        """The wish's answer, unless its decision is under way or an event is there for it."""
        if not wish.begun:
            wish.answer = answer
            self._kick()

    def _interrupt(self, wish: Wish) -> None:
        """User code cancelled the call: that is an outcome too, unless there is one already."""
        if wish.begun:
            self._performer.cancellations.put_off()
        else:
            self._end(wish, ABANDONED)

    def _end(self, wish: Wish, answer: Answer) -> None:
        """Decide it so, whatever events there are."""
        wish.event = None
        wish.answer = answer
        if wish not in self._wishes:
            self._wishes.append(wish)
        self._kick()

    def withdraw(self, wish: Wish | None) -> None:
        """Nobody waits for it any more; what is on its way into the record goes on."""
        if wish is not None and wish.begun:
            self._turn(wish)
        elif wish is not None and wish in self._wishes:
            self._wishes.remove(wish)

    async def _decided(self, wish: Wish) -> Step:
        performer = self._performer
        try:
            await performer.pass_turn(wish.decided, wish.branch)
        finally:
            turn = self._turn(wish)  # in any case: others wait behind it
        await performer.pass_turn(turn, wish.branch)
        assert wish.take is not None
        return wish.take.as_step()

    def _turn(self, wish: Wish) -> anyio.Event | None:
        """Ask for the turn of the wish, once for each.

        Its call does so, when it is there to see the outcome: it may be decided while its call
        still claims a deadline or lists events, and what comes later must not overtake it then.
        """
        if wish.take is not None:
            return self._performer.turnstile.live_turn(wish.take.n)
        wish.deserted = True
        return None

    def _kick(self) -> None:
        if not self.busy and self._next() is not None:
            self.busy = True
            self._spawn(self._run)

    async def _run(self) -> None:
        try:
            with self._performer.turnstile.deciding():
                while self._performer.gate.guard() and (wish := self._next()) is not None:
                    await self._claim(wish)
                    if self._claimed is not None:
                        self._claimed.set()
                        self._claimed = None
        except StoreError as e:
            self._performer.gate.close(Stopped("store", error=e))
        finally:
            self.busy = False
            self._rests()

    def _next(self) -> Wish | None:
        for wish in self._wishes:
            if wish.answer is not None or self._first(wish.event) is not None:
                return wish
        return None

    async def _claim(self, wish: Wish) -> None:
        performer = self._performer
        key = self._first(wish.event)
        if key is not None:
            answer = await self._read(key, wish.call)
            if answer is None or wish not in self._wishes or wish.event is None:
                return  # the event is gone, or the wish is: choose again
            wish.answer = answer
        assert wish.answer is not None
        wish.begun = True
        take = performer.recorder.take(
            wish.call, self._k + 1, wish.answer.outcome, value=wish.answer.value,
            failure=wish.answer.failure, event=wish.answer.event[1] if wish.answer.event else "",
        )  # fmt: skip
        performer.recorder.in_order(take, performer.turnstile.issue())
        await performer.recorder.write_take(take)
        if performer.gate.closing is not None:
            return
        self._k = take.k
        self._wishes.remove(wish)
        if wish.answer.event is not None and not wish.branch.is_decided():
            self._take(wish.answer.event, wish.call.path)
        wish.take = take
        if wish.deserted:
            self._turn(wish)
        performer.around.recorded(performer.run_id)
        performer.tell("record", wish.call, take.as_step())
        wish.decided.set()
        if wish.standing is not None:
            wish.standing.cancel()

    # -- events -----------------------------------------------------------------------------------

    async def look(self) -> None:
        """The run was touched: there may be new events."""
        self._stale = True
        if any(wish.event is not None for wish in self._wishes):
            await self.list()

    async def offer(self, wish: Wish) -> None:
        """Returns once the wish is decided, or there is no event for it: others may get it."""
        if self._stale:
            await self.list()
        while not wish.decided.is_set() and self._first(wish.event) is not None:
            self._claimed = self._claimed or anyio.Event()
            await self._claimed.wait()

    async def list(self) -> None:
        """Learn of the events sent so far."""
        self._stale = False
        performer = self._performer
        folder = names.events_folder(performer.run_id, self._instance)
        self._listed([stored async for stored in performer.around.store.list(folder)])
        self._kick()

    def received(self, path: str) -> None:
        """The wait at `path` has seen its event, so it keeps it."""
        self._received.add(path)

    def void(self, concerns: Callable[[str], bool]) -> None:
        """A decision closed these paths: events that they took and did not see are free again."""
        for key, path in list(self._taken.items()):
            if path not in self._received and concerns(path):
                del self._taken[key]
                self._set_free(key)
        self._kick()

    def _listed(self, events: Iterable[Stored]) -> None:
        folder = names.events_folder(self._performer.run_id, self._instance)
        found = [(stored.created, *names.parse_event(stored.name[len(folder) :]), stored)
                 for stored in events]  # fmt: skip
        for _, name, key, stored in sorted(found, key=lambda item: item[:3]):
            if (name, key) not in self._known:
                self._place[name, key] = len(self._known)
                self._known[name, key] = stored
                if (name, key) not in self._taken:
                    self._set_free((name, key))

    def _take(self, key: Key, path: str) -> None:
        self._taken[key] = path
        free = self._free[key[0]]
        free.remove((self._place[key], key))
        heapq.heapify(free)

    def _set_free(self, key: Key) -> None:
        heapq.heappush(self._free.setdefault(key[0], []), (self._place[key], key))

    def _first(self, event: str | None) -> Key | None:
        free = None if event is None else self._free.get(event)
        return free[0][1] if free else None

    async def _read(self, key: Key, call: Call[Any]) -> Answer | None:
        """What the wait comes to with this event; None if it is no event."""
        event = await record(self._performer.around.store, self._known[key], _event)
        if event is None:
            heapq.heappop(self._free[key[0]])  # a stranger's object: nobody gets it
            return None
        try:
            copy = values.decode(event.value, call.returns)
        except values.Undecodable as e:
            error = InvalidEvent(
                f"run {self._performer.run_id!r} got event {key[0]!r} with key {key[1]!r}, whose "
                f"value does not fit the type that {call.path!r} asks for: {e}",
                hint="declare the type in @workflow(events=...), so that senders check it",
            )
            return Answer("error", failure=failures.from_exception(error), event=key)
        return Answer("value", event.value, copy=copy, event=key)


def _event_name(take: Take) -> str:
    return take.name.removeprefix("event-")
