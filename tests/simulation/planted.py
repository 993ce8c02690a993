"""The test of the tester: bugs planted in the real code, each of which a simulation must find.

A bug is a context manager that changes a rule of the runtime or the store for a while. To add
one: a decorated generator of a few lines. `nox -s planted` looks for all of them, first of all
where planted code is called: each call of it is noted in `called_at`.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import anyio
import msgspec

from durable.errors import StoreError
from durable.protocol import journal, names, records
from durable.protocol.attempts import Tried
from durable.runtime import finishing, markers, opening
from durable.runtime.branches import Branches
from durable.runtime.custody import Custody
from durable.runtime.gate import Gate
from durable.runtime.helpers import Helpers, Work
from durable.runtime.holdings import Holdings
from durable.runtime.identity import Identity
from durable.runtime.inbox import Inbox
from durable.runtime.lease import LeaseKeeper
from durable.runtime.limits import Limits
from durable.runtime.markers import Held
from durable.runtime.patches import Patches
from durable.runtime.publishing import Publishing
from durable.runtime.recording import Recorder
from durable.runtime.runner import Runner
from durable.runtime.sweeper import Sweeper
from durable.runtime.turnstile import Turnstile
from durable.runtime.waits import Waits
from durable.runtime.wishes import Wish
from durable.store import Page, Refused, Store, Stored, Written
from durable.testing.simulation.loop import strand
from durable.testing.simulation.machines import Machine
from durable.testing.simulation.world import World
from tests.virtual_time import virtual_seconds

Bug = Callable[[], contextlib.AbstractContextManager[None]]

BUGS: dict[str, Bug] = {}

called_at: set[int] = set()  # how many store calls had been sent when planted code was called


def bug(fn: Callable[[], Iterator[None]]) -> Bug:
    made = contextlib.contextmanager(fn)
    BUGS[fn.__name__] = made
    return made


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """The attribute has another value for a while."""
    before = owner.__dict__[name]
    if inspect.isfunction(before):
        _check_takes(value, before)
    setattr(owner, name, _noted(value) if callable(value) else value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _check_takes(value: Callable[..., Any], before: Callable[..., Any]) -> None:
    """A bug that cannot be called as what it replaces is found by that error, not by a rule."""
    asked = inspect.signature(before).parameters.values()
    args = [p.name for p in asked if p.kind in {p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD}]
    by_name = {p.name: p.name for p in asked if p.kind is p.KEYWORD_ONLY}
    inspect.signature(value).bind(*args, **by_name)


def _noted(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def noted(*args: Any, **kwargs: Any) -> Any:
        place = strand.get(None)
        if place is not None and isinstance(place.loop.world_of, World):
            called_at.add(place.loop.world_of.network.calls)
        return fn(*args, **kwargs)

    return noted


# -- claims and records ---------------------------------------------------------------------------


async def _overwrite(store: Store, name: str, body: bytes, nonce: str) -> None:
    """Put ours in the place of whatever is there."""
    while True:
        there = await store.read(name)
        if there is None:
            await store.create(name, body, nonce=nonce)
            return
        if isinstance(await store.replace(name, there.generation, body, nonce=nonce), Written):
            return


@bug
def create_without_the_precondition() -> Iterator[None]:
    """Whoever comes second writes over the first."""

    async def create(self: Store, name: str, body: bytes, *, nonce: str, **rest: Any) -> Written:
        await _overwrite(self, name, body, nonce)
        return Written(0, 0.0)

    true = Store.create

    async def only_records(self: Store, name: str, body: bytes, **rest: Any) -> Written | Refused:
        if "/steps/" in name and await self.read(name) is not None:
            return await create(self, name, body, **rest)
        return await true(self, name, body, **rest)

    with replaced(Store, "create", only_records):
        yield


@bug
def one_name_per_epoch() -> Iterator[None]:
    async def create(self: Recorder, step: records.Step) -> None:
        owner = self.ownership
        name = names.step(owner.run_id, owner.instance, f"{step.path}@{step.epoch}")
        await self.around.store.create(name, records.encode(step), nonce=step.nonce)

    with replaced(Recorder, "_create_outcome", create):
        yield


@bug
def overwrite_what_was_first() -> Iterator[None]:
    async def create(self: Recorder, step: records.Step) -> None:
        owner = self.ownership
        name, body = names.step(owner.run_id, owner.instance, step.path), records.encode(step)
        written = await self.around.store.create(name, body, nonce=step.nonce)
        if isinstance(written, Refused):
            await _overwrite(self.around.store, name, body, step.nonce)

    with replaced(Recorder, "_create_outcome", create):
        yield


@bug
def the_loser_keeps_its_value() -> Iterator[None]:
    async def create(self: Recorder, step: records.Step) -> None:
        owner = self.ownership
        name = names.step(owner.run_id, owner.instance, step.path)
        await self.around.store.create(name, records.encode(step), nonce=step.nonce)

    with replaced(Recorder, "_create_outcome", create):
        yield


@bug
def handed_over_before_it_is_recorded() -> Iterator[None]:
    async def write(self: Recorder, create: Any, record: Any, branch: Any, **how: Any) -> None:
        async def apart() -> None:
            await create(record)

        self.spawn(apart)

    with replaced(Recorder, "_write", write):
        yield


@bug
def result_before_the_last_record() -> Iterator[None]:
    true = Recorder._write

    async def write(self: Recorder, create: Any, record: Any, branch: Any, **how: Any) -> None:
        if getattr(record, "name", "") != "sim.toil":
            return await true(self, create, record, branch, **how)

        async def apart() -> None:
            await virtual_seconds(0.1)
            await create(record)

        self.spawn(apart)
        return None

    with replaced(Recorder, "_write", write):
        yield


@bug
def the_result_is_overwritten() -> Iterator[None]:
    async def record(custody: Custody, facts: Any, result: records.Result) -> records.Result:
        result = msgspec.structs.replace(result, nonce=custody.token(), time=custody.now())
        name = names.result(custody.run, facts.start.instance)
        await _overwrite(custody.store, name, records.encode(result), result.nonce)
        return result

    with replaced(finishing, "record", record):
        yield


@bug
def failed_attempts_are_not_recorded() -> Iterator[None]:
    async def write(self: Recorder, attempt: Any, branch: Any) -> None:
        await anyio.lowlevel.checkpoint()

    with replaced(Recorder, "write_attempt", write):
        yield


@bug
def bodies_begin_without_a_claim() -> Iterator[None]:
    async def claim(self: Recorder, begin: records.Begin) -> None: ...

    with replaced(Recorder, "claim", claim):
        yield


@bug
def the_last_value_is_not_flushed() -> Iterator[None]:
    async def flush(self: Publishing) -> None: ...

    with replaced(Publishing, "flush", flush):
        yield


@bug
def cancellation_recorded_as_failure() -> Iterator[None]:
    """A worker that unwinds records what that looks like to the body."""
    import durable.runtime.bodies as module

    true = Recorder._write

    async def write(self: Recorder, create: Any, record: Any, branch: Any, **how: Any) -> None:
        if self.gate.closing is not None and getattr(record, "failure", None) is not None:
            with anyio.CancelScope(shield=True):
                await create(record)
        await true(self, create, record, branch, **how)

    with (
        replaced(module, "cancelled_since", lambda count: False),
        replaced(Recorder, "_write", write),
    ):
        yield


# -- order ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def _sorted_by(key: Callable[[records.Step, int], Any]) -> Iterator[None]:
    import durable.runtime.facts as module

    true = journal.build

    def build(*args: Any) -> journal.Journal:
        made = true(*args)
        claims = made.epochs
        numbers = sorted(claims)
        made.order.sort(key=lambda s: key(s, journal._first_seen(s, numbers, claims)))
        return made

    with replaced(module, "build", build):
        yield


@bug
def late_records_before_the_living() -> Iterator[None]:
    with _sorted_by(lambda step, seen: (seen, step.epoch, step.n)):
        yield


@bug
def records_in_the_order_of_paths() -> Iterator[None]:
    with _sorted_by(lambda step, seen: step.path):
        yield


@bug
def late_records_are_not_told_apart() -> Iterator[None]:
    with _sorted_by(lambda step, seen: (step.epoch, step.n)):
        yield


@bug
def branches_named_by_a_counter_of_the_process() -> Iterator[None]:
    true = Branches._in_scope
    numbers = count()

    async def in_scope(self: Branches, index: int, branch: Any, paths: Any) -> Any:
        return await true(self, next(numbers), branch, paths)

    with replaced(Branches, "_in_scope", in_scope):
        yield


# -- leases ---------------------------------------------------------------------------------------


@bug
def renewal_without_the_precondition() -> Iterator[None]:
    true = LeaseKeeper._send

    async def send(self: LeaseKeeper, tenure: Any, nonce: str) -> Written | Refused:
        there = await self._store.read(self._name)
        if there is not None and tenure.generation is not None:
            tenure.generation = there.generation
        return await true(self, tenure, nonce)

    with replaced(LeaseKeeper, "_send", send):
        yield


@bug
def deadline_counted_from_the_reply() -> Iterator[None]:
    true = LeaseKeeper._write

    async def write(self: LeaseKeeper, tenure: Any) -> float | None:
        since = await true(self, tenure)
        return None if since is None else self._system.boot()

    with replaced(LeaseKeeper, "_write", write):
        yield


@bug
def expiry_by_the_local_wall_clock() -> Iterator[None]:
    with replaced(Store, "now", lambda self: self.system.wall()):
        yield


@bug
def a_clock_blind_to_suspend() -> Iterator[None]:
    with replaced(Machine, "boot_clock", Machine.monotonic_clock):
        yield


@bug
def renewed_on_the_loop_of_the_bodies() -> Iterator[None]:
    with replaced(World, "_place", lambda self, task: None):
        yield


@bug
def nobody_looks_at_the_lease() -> Iterator[None]:
    """Bodies start and records are written whether the lease is held or not."""

    async def held(self: LeaseKeeper) -> None:
        """At once."""

    with (
        replaced(Gate, "guard", lambda self: self.closing is None),
        replaced(LeaseKeeper, "held", held),
    ):
        yield


@bug
def taken_before_the_lease_is_acknowledged() -> Iterator[None]:
    async def lease(self: Holdings, run: str) -> Identity:
        self._taking.add(run)
        identity = self.identity

        async def acquire() -> None:
            with contextlib.suppress(StoreError):
                await identity.keeper.acquire()

        self._tasks.start_soon(acquire)
        return identity

    with replaced(Holdings, "_lease", lease):
        yield


@bug
def a_taker_that_does_not_fence() -> Iterator[None]:
    async def fence(self: Sweeper, stored: Stored, lease: Any, proof: Any) -> bool:
        await anyio.lowlevel.checkpoint()
        return True

    with replaced(Sweeper, "_fence", fence):
        yield


@bug
def leases_fenced_at_half_their_time() -> Iterator[None]:
    import durable.protocol.leases as module

    def expired(updated: float, now: float, lease: records.Lease) -> bool:
        return now > updated + lease.ttl / 2

    with replaced(module, "expired", expired):
        yield


@bug
def nobody_looks_at_lock_files() -> Iterator[None]:
    async def judge_orphans(self: Sweeper) -> bool:
        await anyio.lowlevel.checkpoint()
        return False

    with replaced(Sweeper, "judge_orphans", judge_orphans):
        yield


@bug
def a_lock_file_alone_proves_a_death() -> Iterator[None]:
    """Whether its lock is held is not asked."""
    import durable.runtime.locks as module

    with replaced(module, "_try_lock", lambda descriptor: True):
        yield


# -- markers and epochs ---------------------------------------------------------------------------


@bug
def owner_token_is_the_host_name() -> Iterator[None]:
    true = markers.take

    async def take(store: Store, stored: Stored, marker: Any, **names: str) -> Held | None:
        return await true(store, stored, marker, **(names | {"owner": "host"}))

    with replaced(markers, "take", take):
        yield


@bug
def epoch_not_raised_on_takeover() -> Iterator[None]:
    async def epoch(custody: Custody, facts: Any, journal: Any, *rest: Any) -> int:
        await anyio.lowlevel.checkpoint()
        return max(journal.epochs, default=1)

    with replaced(opening, "claim_epoch", epoch):
        yield


@bug
def an_empty_folder_is_a_first_epoch() -> Iterator[None]:
    true = opening.claim_epoch

    async def epoch(custody: Custody, facts: Any, journal: Any, *rest: Any) -> Any:
        return 1 if facts.fresh else await true(custody, facts, journal, *rest)

    with replaced(opening, "claim_epoch", epoch):
        yield


@bug
def marker_deleted_before_the_result() -> Iterator[None]:
    true = finishing.record

    async def record(custody: Custody, facts: Any, result: Any) -> Any:
        await custody.store.delete(custody.held.name, custody.held.generation)
        return await true(custody, facts, result)

    with replaced(finishing, "record", record):
        yield


@bug
def marker_deleted_whoever_holds_it() -> Iterator[None]:
    async def let_go(store: Store, held: Held, look: Any) -> bool:
        there = await store.read(held.name)
        return there is None or await store.delete(held.name, there.generation)

    with replaced(markers, "let_go", let_go):
        yield


@bug
def given_back_whoever_holds_it() -> Iterator[None]:
    async def give_back(store: Store, held: Held, *, why: Any = "drain", nonce: Any) -> None:
        unowned = msgspec.structs.replace(held.marker, holder="", owner="", nonce=nonce(), why=why)
        await _overwrite(store, held.name, records.encode(unowned), unowned.nonce)

    true = Runner.stop

    def stop(self: Runner, why: Any) -> None:
        true(self, why)
        self._custody.spawn(self._custody.give_back)

    with replaced(markers, "give_back", give_back), replaced(Runner, "stop", stop):
        yield


@bug
def a_start_is_one_write_and_no_marker_is_repeated() -> Iterator[None]:
    """The client's marker is sent once and forgotten."""
    true = markers.create

    async def create(store: Store, marker: Any) -> Written | Refused:
        try:
            return await true(store.patient(0), marker)
        except Exception:
            return Written(0, 0.0)

    with replaced(markers, "create", create):
        yield


# -- lists ----------------------------------------------------------------------------------------


@bug
def only_the_first_page() -> Iterator[None]:
    true = Store.page

    async def page(self: Store, prefix: str, token: str | None = None, *within: Any) -> Page:
        return Page((await true(self, prefix, token, *within)).items, None)

    with replaced(Store, "page", page):
        yield


@bug
def a_cache_of_lists() -> Iterator[None]:
    true = Store.page
    kept: dict[tuple[int, str], Page] = {}

    async def page(self: Store, prefix: str, token: str | None = None, *within: Any) -> Page:
        key = (id(self.backend), prefix)
        if token is None and prefix.startswith("runs/") and key in kept:
            return kept.pop(key)
        kept[key] = await true(self, prefix, token, *within)
        return kept[key]

    with replaced(Store, "page", page):
        yield


@bug
def a_look_ends_at_the_first_error() -> Iterator[None]:
    with replaced(Holdings, "_try_to_take", Holdings.take):
        yield


# -- waits, events, undo, at most once, singletons -------------------------------------------------


@bug
def deadline_from_the_last_begin() -> Iterator[None]:
    """Whoever resumes a sleep waits all of it again."""

    async def begin(self: Waits, call: Any, due_at: Any) -> records.Wait:
        recorder = self.performer.recorder
        wait = recorder.wait(call, due_at(self.now()))
        await recorder.claim_wait(wait)
        return wait

    with replaced(Waits, "begin", begin):
        yield


@bug
def overdue_waits_end_as_they_stand_in_the_code() -> Iterator[None]:
    with replaced(Turnstile, "overdue_turn", lambda self, due: None):
        yield


@bug
def decided_waits_are_handed_over_wherever_their_calls_are() -> Iterator[None]:
    """The number of a decision counts as seen though its call stands in line for its deadline."""
    turns: dict[Wish, Any] = {}

    def turn(self: Inbox, wish: Wish) -> Any:
        if wish.take is not None and wish not in turns:
            turns[wish] = self._performer.turnstile.live_turn(wish.take.n)
        return turns.get(wish)

    with (
        replaced(Inbox, "_turn", turn),
        replaced(Wish, "deserted", property(lambda wish: True, lambda wish, value: None)),
        replaced(Wish, "standing", property(lambda wish: None, lambda wish, value: None)),
    ):
        yield


@bug
def a_wait_takes_an_event_that_is_there_for_its_own() -> Iterator[None]:
    async def offer(self: Inbox, wish: Wish) -> None:
        if self._stale:
            await self.list()
        if self._first(wish.event) is not None:
            await wish.decided.wait()

    with replaced(Inbox, "offer", offer):
        yield


@bug
def taken_events_are_free_again() -> Iterator[None]:
    def take(self: Inbox, key: Any, path: str) -> None:
        self._taken[key] = path

    with replaced(Inbox, "_take", take):
        yield


@bug
def events_in_the_order_of_their_names_reversed() -> Iterator[None]:
    def first(self: Inbox, event: str | None) -> Any:
        free = None if event is None else self._free.get(event)
        return max(free)[1] if free else None

    with replaced(Inbox, "_first", first):
        yield


@bug
def undone_in_the_order_of_doing() -> Iterator[None]:
    import durable.runtime.undoing as module

    with replaced(module, "_order", lambda undo: (-undo.epoch, -undo.n, undo.path)):
        yield


@bug
def undo_is_not_registered() -> Iterator[None]:
    async def write(self: Recorder, undo: Any, branch: Any) -> None:
        await anyio.lowlevel.checkpoint()

    with replaced(Recorder, "write_undo", write):
        yield


@bug
def a_later_owner_knows_no_deadline() -> Iterator[None]:
    """The first owner of a run alone ends it in time."""
    true = Limits.start

    def start(self: Limits) -> None:
        if self.function.root.execution.ownership.epoch > 1:
            self.deadline = 0.0
        true(self)

    with replaced(Limits, "start", start):
        yield


@bug
def at_most_once_is_forgotten() -> Iterator[None]:
    """Bodies are claimed, and nobody asks who has claimed them."""

    async def claim(self: Recorder, begin: Any) -> None:
        owner = self.ownership
        name = names.begin(owner.run_id, owner.instance, begin.path, begin.attempt)
        await self.around.store.create(name, records.encode(begin), nonce=begin.nonce)

    with replaced(Recorder, "claim", claim), replaced(Tried, "unknown", False):
        yield


@bug
def a_lock_is_always_free() -> Iterator[None]:
    import durable.protocol.singletons as module

    with replaced(module, "is_free", lambda lock, now, *, over: True):
        yield


@bug
def failures_recorded_as_cancellations() -> Iterator[None]:
    true = finishing.record

    async def record(custody: Custody, facts: Any, result: Any) -> Any:
        if result.failure is not None:
            result = msgspec.structs.replace(result, status="cancelled")
        return await true(custody, facts, result)

    with replaced(finishing, "record", record):
        yield


@bug
def a_known_touch_is_not_looked_at() -> Iterator[None]:
    async def let_go(self: Custody, look: Any) -> bool:
        return await markers.let_go(self.store, self.held, look)

    with replaced(Custody, "let_go", let_go):
        yield


@bug
def what_ends_a_helper_ends_the_worker() -> Iterator[None]:
    async def run(self: Helpers, work: Work, scope: anyio.CancelScope) -> None:
        try:
            with scope:
                await work()
        finally:
            self._scopes.discard(scope)
            if not self._scopes and self._none_left is not None:
                self._none_left.set()

    with replaced(Helpers, "_run", run):
        yield


# -- fit ------------------------------------------------------------------------------------------


@bug
def drift_is_handed_over() -> Iterator[None]:
    """A recorded value goes to whatever call asks at that path."""
    import durable.runtime.fit as module

    with replaced(module, "drift", lambda run, call, step: None):
        yield


@bug
def a_patch_is_for_everybody() -> Iterator[None]:
    """A run that is past the change is led the new way."""
    with replaced(Patches, "decide", lambda *_: True):
        yield
