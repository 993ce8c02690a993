"""One dispatcher per run: in which order outcomes reach the workflow, live and on replay.

The workflow's course between two outcomes depends only on the outcomes handed over so far and
on their order. So the order is recorded (see durable.protocol.journal) and repeated:

- Live, an outcome waits until every lower number issued by this owner has been handed over.
- On replay the lowest recorded outcome that is awaited goes next. While recorded outcomes
  remain, no unrecorded body starts; when the run has come to rest and none of the remaining is
  awaited, they start.
- A call that was abandoned waits for its cancellation to come again. It may come from a timer of
  the user's, so what was recorded behind it, and what is recorded now, waits with it.
- Waits whose deadlines have passed are over in the order of these, once nothing else is handed
  over or started: a run that was away wakes to several, and what the code does behind the first
  may end the others, as it would have done in time.
- Between two hand-overs the run comes to rest: `TURNS` turns of the event loop pass, counted
  anew whenever the run makes a call, receives an outcome or ends a branch.

While only the root strand has made calls, one after the other, nothing can come in another
order: an outcome is handed over at once, and the dispatcher does not even exist.

TURNS is measured, not proved. Of 300 random asyncio programs with up to nine tasks between a
call and the reader of its outcome, 50 replayed in another order with 3 turns, 3 with 6, none with
10; with up to five tasks, none with 6. (trio shuffles each batch of runnable tasks, and
`asyncio.wait(FIRST_COMPLETED)` takes 3 turns from outcome to reader.)
"""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence

import anyio

from durable.runtime.news import News
from durable.runtime.turns import turn

TURNS = 12  # about 15 us of CPU a hand-over on asyncio

# The run is given more turns before a recorded outcome that it has not awaited yet is passed
# over: it is code that takes long between two calls, code that has changed, or a timer.
LAG_TURNS = 100


class Turnstile:
    """Hands outcomes over, one at a time, in recorded order.

    The methods that ask for a turn return None if it is the caller's turn at once, else an
    event to wait for.

    Args:
        recorded: the paths of the recorded outcomes, in order.
        start_dispatcher: called once with it, when the run first makes calls concurrently.
    """

    def __init__(
        self, recorded: Sequence[str], start_dispatcher: Callable[[Turnstile], None]
    ) -> None:
        self._place = {path: i for i, path in enumerate(recorded)}  # those that remain
        self._gone = bytearray(len(recorded))
        self._lowest = 0
        self._awaited: list[tuple[int, anyio.Event]] = []
        self._uncancelled: set[int] = set()
        self._issued = 0
        self._next = 1
        self._known: dict[int, anyio.Event] = {}
        self._held: list[anyio.Event] = []
        self._settling: list[anyio.Event] = []
        self._overdue: list[tuple[float, int, anyio.Event]] = []  # a heap
        self._overdue_so_far = 0
        self._deciding = 0
        self._start_dispatcher = start_dispatcher
        self._dispatching = False
        self._news = News()
        self.activity = 0

    # -- asking for a turn ------------------------------------------------------------------------

    def recorded_turn(self, path: str) -> anyio.Event | None:
        """The call at `path` awaits its recorded outcome."""
        place = self._place.pop(path)
        self._uncancelled.discard(place)
        if not self._dispatching and place == self._lowest_remaining():
            self._leave(place)
            return None
        event = anyio.Event()
        heapq.heappush(self._awaited, (place, event))  # places are unique
        self._tell()
        return event

    def expect_cancellation(self, path: str) -> None:
        """The call at `path` was abandoned: it asks for its turn once it is cancelled again."""
        self._uncancelled.add(self._place[path])

    def start_turn(self) -> anyio.Event | None:
        """An unrecorded call wants to start its body."""
        if not self._place and not self._awaited:
            return None
        event = anyio.Event()
        self._held.append(event)
        self._tell()
        return event

    def issue(self) -> int:
        """The order number of a record of ours: its body has ended, its create is not yet sent."""
        self._issued += 1
        return self._issued

    def settled(self) -> anyio.Event:
        """Set when the run has come to rest, before the next outcome is handed over."""
        event = anyio.Event()
        self._settling.append(event)
        self._tell()
        return event

    def live_turn(self, number: int) -> anyio.Event | None:
        """Our record of that number is acknowledged; its call awaits the outcome."""
        if not self._dispatching and number == self._next:
            self._next += 1
            return None
        event = self._known[number] = anyio.Event()
        self._tell()
        return event

    def overdue_turn(self, due: float) -> anyio.Event | None:
        """The deadline of a wait has passed: it is over after all that were due before."""
        if not self._dispatching:
            return None
        event = anyio.Event()
        self._overdue_so_far += 1
        heapq.heappush(self._overdue, (due, self._overdue_so_far, event))
        self._tell()
        return event

    def give_up(self, event: anyio.Event) -> None:
        """Nobody waits any more for that turn of a wait."""
        if event.is_set():
            return
        self._overdue = [waiting for waiting in self._overdue if waiting[2] is not event]
        heapq.heapify(self._overdue)

    # -- what else the run tells ------------------------------------------------------------------

    @contextlib.contextmanager
    def deciding(self) -> Iterator[None]:
        """Something is under way that comes of one wait, and may end others."""
        self._deciding += 1
        try:
            yield
        finally:
            self._deciding -= 1
            if self._overdue:
                self._tell()

    def concurrent(self) -> None:
        """From now on outcomes go through the dispatcher."""
        if not self._dispatching:
            self._dispatching = True
            self._start_dispatcher(self)

    def forget(self, paths: Iterable[str]) -> None:
        """These recorded outcomes will never be awaited: a decision closed their branch."""
        for path in paths:
            place = self._place.pop(path, None)
            if place is not None:
                self._uncancelled.discard(place)
                self._leave(place)
        self._tell()

    def remaining(self) -> list[str]:
        """Paths of recorded outcomes that nobody has awaited yet, in order."""
        return sorted(self._place, key=self._place.__getitem__)

    def at_end(self) -> bool:
        """Whether every recorded outcome has been handed over."""
        return not self._place and not self._awaited

    def passed(self, count: int) -> bool:
        """Whether the first so many recorded outcomes have been handed over."""
        return self._lowest_remaining() >= count

    @property
    def replaying(self) -> bool:
        """Whether recorded outcomes remain and nothing new was recorded yet."""
        return bool(self._place) and not self._issued

    def release(self) -> None:
        """The run is closed: every waiter goes on and finds that out."""
        for _, event in self._awaited:
            event.set()
        overdue = [event for *_, event in self._overdue]
        for event in [*self._known.values(), *self._held, *self._settling, *overdue]:
            event.set()

    # -- the dispatcher ---------------------------------------------------------------------------

    async def dispatch(self) -> None:
        """Hand over what is due, for ever; the run cancels it at its end."""
        while True:
            await self._news.wait()
            while self._pending():
                await self._rest()
                if self._passes_over():
                    await self._wait_for_laggard()
                else:
                    self._hand_over_next()

    def _pending(self) -> bool:
        return bool(
            self._settling or self._recorded_is_due() or self._own_is_due() or self._held
            or self._wait_is_due()
        )  # fmt: skip

    def _recorded_is_due(self) -> bool:
        return bool(self._awaited) and (
            not self._uncancelled or self._awaited[0][0] < min(self._uncancelled)
        )

    def _own_is_due(self) -> bool:
        return self._next in self._known and not self._awaited and not self._uncancelled

    def _wait_is_due(self) -> bool:
        return bool(self._overdue) and not self._deciding

    def _passes_over(self) -> bool:
        """Whether the lowest recorded outcome is not awaited yet: another would go first."""
        lowest = self._lowest_remaining()
        if self._settling or lowest == len(self._gone) or lowest in self._uncancelled:
            return False
        return not self._awaited or self._awaited[0][0] != lowest

    async def _wait_for_laggard(self) -> None:
        seen = self.activity
        for _ in range(LAG_TURNS):
            await turn()
            if self.activity != seen:
                return
        self._leave(self._lowest_remaining())  # it may still come, but no longer first

    def _hand_over_next(self) -> None:
        if self._settling:
            self._settling.pop().set()
        elif self._recorded_is_due():
            place, event = heapq.heappop(self._awaited)
            self._leave(place)
            event.set()
        elif self._own_is_due():
            self._known.pop(self._next).set()
            self._next += 1
        elif self._held:
            held, self._held = self._held, []
            for event in held:
                event.set()
        elif self._wait_is_due():
            heapq.heappop(self._overdue)[2].set()
        self.activity += 1

    async def _rest(self) -> None:
        """Until `TURNS` turns in a row saw no activity of the run."""
        seen, quiet = self.activity, 0
        while quiet < TURNS:
            await turn()
            if self.activity == seen:
                quiet += 1
            else:
                seen, quiet = self.activity, 0

    def _tell(self) -> None:
        self.concurrent()
        self._news.tell()

    def _leave(self, place: int) -> None:
        self._gone[place] = 1

    def _lowest_remaining(self) -> int:
        while self._lowest < len(self._gone) and self._gone[self._lowest]:
            self._lowest += 1
        return self._lowest
