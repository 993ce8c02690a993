"""The same words for code without `async`: scripts, web frameworks, sync workflows.

`sync.connect()` gives a client whose methods block. It is the async client, whose coroutines are
run in an event loop of its own thread: there is one bridge, and nothing is written twice.

Inside a sync workflow, steps are simply called. To run several at once:

    receipts = sync.map(charge, orders)
    one, two = sync.gather(charge.call("A-1"), notify.call("A-1"))
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
)
from datetime import datetime
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
    overload,
)

import anyio
import anyio.from_thread
import msgspec

from durable import catalog, documents, guarding, leases, repeatable
from durable import client as async_client
from durable.claims import Claim, ClaimResult
from durable.client import repair
from durable.client.replaying import LIMIT, Replay
from durable.client.schedules import BACKFILL_MAX
from durable.concurrency import (
    MAP_LIMIT,
    HasCall,
    check_awaitable,
    check_mappable,
    check_selectable,
    warn_of_unordered,
)
from durable.decorators import WorkflowFunction
from durable.documents import Snapshot
from durable.errors import NotInWorkflow, RunCancelled, UsageError
from durable.leases import LeaseEntry, Refuse, Taken
from durable.leases.holder import WAIT_DEFAULT
from durable.protocol import durations
from durable.protocol.leases import TTL_DEFAULT, Terms
from durable.protocol.primitives import KEEP
from durable.protocol.schedules import Schedule
from durable.runtime import publishing
from durable.runtime.branches import gather_in, map_in, select_in
from durable.runtime.scopes import Scope, calling_scope, here
from durable.runtime.threadwatch import in_thread
from durable.waiting import (
    Duration,
    check_not_in_step,
    sleep_in,
    sleep_until_in,
    timeout_in,
    wait_event_in,
)

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
U = TypeVar("U")


# -- words that never wait: the same in sync code ------------------------------------------------

now = repeatable.now
patched = repeatable.patched
publish = publishing.publish
random = repeatable.random
uuid = repeatable.uuid


# -- in sync workflows ---------------------------------------------------------------------------


@overload
def gather(a: Awaitable[A], b: Awaitable[B], /) -> tuple[A, B]: ...
@overload
def gather(a: Awaitable[A], b: Awaitable[B], c: Awaitable[C], /) -> tuple[A, B, C]: ...
@overload
def gather(
    a: Awaitable[A], b: Awaitable[B], c: Awaitable[C], d: Awaitable[D], /
) -> tuple[A, B, C, D]: ...
@overload
def gather(
    a: Awaitable[A], b: Awaitable[B], c: Awaitable[C], d: Awaitable[D], e: Awaitable[E], /
) -> tuple[A, B, C, D, E]: ...
@overload
def gather(*calls: Awaitable[T]) -> tuple[T, ...]: ...
def gather(*calls: Awaitable[Any]) -> tuple[Any, ...]:
    """Make several calls at once and wait for all: `sync.gather(a.call(1), b.call(2))`.

    Raises:
        NotInWorkflow: called in async code.
        UsageError: an argument is no call.
    """
    scope = _sync_scope("gather")
    check_awaitable(calls)
    return tuple(_block(scope, lambda: gather_in(scope, calls)))


@overload
def map(
    fn: HasCall[T, U],
    items: Iterable[T],
    *,
    limit: int = MAP_LIMIT,
    tolerate: float | str | None = None,
    enough: int | None = None,
    collect: Literal[False] = False,
) -> list[U]: ...
@overload
def map(
    fn: Callable[[T], Coroutine[Any, Any, U]],
    items: Iterable[T],
    *,
    limit: int = MAP_LIMIT,
    tolerate: float | str | None = None,
    enough: int | None = None,
    collect: Literal[False] = False,
) -> list[U]: ...
@overload
def map(
    fn: Callable[[T], U],
    items: Iterable[T],
    *,
    limit: int = MAP_LIMIT,
    tolerate: float | str | None = None,
    enough: int | None = None,
    collect: Literal[False] = False,
) -> list[U]: ...
@overload
def map(
    fn: HasCall[T, U] | Callable[[T], Coroutine[Any, Any, U]] | Callable[[T], U],
    items: Iterable[T],
    *,
    limit: int = MAP_LIMIT,
    tolerate: float | str | None = None,
    enough: int | None = None,
    collect: Literal[True],
) -> list[U | BaseException]: ...
def map(
    fn: Any,
    items: Iterable[Any],
    *,
    limit: int = MAP_LIMIT,
    tolerate: float | str | None = None,
    enough: int | None = None,
    collect: bool = False,
) -> list[Any]:
    """Call `fn` on each item, `limit` at a time, and wait for all; see `durable.map`.

    Args:
        fn: a step, or a plain function that calls steps: each item then has a thread.
        items: read as places become free.
        limit: how many branches run at once.
        tolerate: how many items may fail: a count, or a share of them such as `"10%"`.
        enough: as soon as so many items have succeeded the other branches are closed.
        collect: put the error of an item that failed in its place; without, it is left out.

    Raises:
        NotInWorkflow: called in async code.
        UsageError: an option is out of range, or the items cannot be counted.
    """
    check_mappable(fn, items)
    scope = _sync_scope("map")
    warn_of_unordered(scope, items)
    options: Any = {"tolerate": tolerate, "enough": enough, "collect": collect}
    return _block(scope, lambda: map_in(scope, _in_branches(fn, limit), items, limit, **options))


def select(**calls: Awaitable[Any]) -> tuple[str, Any]:
    """Make several calls and wait for the first to end; see `durable.select`.

        winner, value = sync.select(ok=sync.wait_event.call("ok"), late=sync.sleep.call("2d"))

    Raises:
        NotInWorkflow: called in async code.
        UsageError: there is no call, or an argument is none.
    """
    scope = _sync_scope("select")
    check_selectable(calls)
    return _block(scope, lambda: select_in(scope, calls))


def run(call: Awaitable[T]) -> T:
    """Make one call and wait for it; for async steps: `sync.run(fetch(url))`.

    Raises:
        NotInWorkflow: called in async code.
        UsageError: it is no call.
    """
    scope = _sync_scope("run")
    check_awaitable([call])
    return _block(scope, lambda: call)


class _Sleep:
    def __call__(self, duration: Duration) -> None:
        """Wait for that long; see `durable.sleep`.

        Raises:
            UsageError: it is no possible duration.
            NotInWorkflow: called in async code, or in a step's body.
        """
        _wait("sleep", lambda scope: sleep_in(scope, duration))

    def call(self, duration: Duration) -> Awaitable[None]:
        """The same as a call for `sync.select` and `sync.gather`."""
        return sleep_in(_wait_scope("sleep"), duration)


class _SleepUntil:
    def __call__(self, moment: datetime) -> None:
        """Wait until that moment, which has a time zone; see `durable.sleep_until`.

        Raises:
            UsageError: it has none.
            NotInWorkflow: called in async code, or in a step's body.
        """
        _wait("sleep_until", lambda scope: sleep_until_in(scope, moment))

    def call(self, moment: datetime) -> Awaitable[None]:
        """The same as a call for `sync.select` and `sync.gather`."""
        return sleep_until_in(_wait_scope("sleep_until"), moment)


class _WaitEvent:
    @overload
    def __call__(self, name: str, type: type[T], *, timeout: Duration | None = None) -> T: ...
    @overload
    def __call__(
        self, name: str, type: object = None, *, timeout: Duration | None = None
    ) -> Any: ...
    def __call__(self, name: str, type: object = None, *, timeout: Duration | None = None) -> Any:
        """Wait for an event that somebody sends to the run; see `durable.wait_event`.

        Raises:
            WaitTimeout: nothing came in that time.
            InvalidEvent: what came does not fit the type.
            NotInWorkflow: called in async code, outside a run, or in a step's body.
        """
        return _wait("wait_event", lambda scope: wait_event_in(scope, name, type, timeout))

    def call(
        self, name: str, type: object = None, *, timeout: Duration | None = None
    ) -> Awaitable[Any]:
        """The same as a call for `sync.select` and `sync.gather`."""
        return wait_event_in(_wait_scope("wait_event"), name, type, timeout)


sleep = _Sleep()
sleep_until = _SleepUntil()
wait_event = _WaitEvent()


def timeout(duration: Duration) -> contextlib.AbstractContextManager[None]:
    """A block of code under a durable deadline; see `durable.timeout`.

    The call of the block that is under way, and each after it, raises until the block is left.

    Raises:
        UsageError: the duration cannot be read.
        NotInWorkflow: called in async code, outside a run, or in a step's body.
    """
    scope = _wait_scope("timeout")
    if scope is None:
        raise NotInWorkflow("sync.timeout was called outside a run: nothing can be cut off there")
    return timeout_in(scope, durations.seconds(duration))


def _wait(word: str, make: Callable[[Scope | None], Awaitable[T]]) -> T:
    call = make(scope := _wait_scope(word))
    return _block(scope, lambda: call)


def _wait_scope(word: str) -> Scope | None:
    check_not_in_step(f"sync.{word}")
    return _sync_scope(word)


@overload
def once(key: str, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
@overload
def once(key: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
def once(key: str, fn: Callable[P, Awaitable[R] | R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """`durable.once` for the bodies of sync steps.

    Raises:
        NotInWorkflow: called outside a step's body, in a thread of the body's own, or in async
            code.
    """
    if _in_event_loop():
        raise NotInWorkflow(
            "sync.once was called in async code, where it would block the event loop",
            hint="write `await durable.once(...)`",
        )
    try:
        value: Any = anyio.from_thread.run(
            functools.partial(guarding.once, key, fn, *args, **kwargs)
        )
    except anyio.NoEventLoopError as e:
        raise NotInWorkflow(
            "sync.once was called in a thread that durable did not start",
            hint="scripts write `client.once(key, fn, ...)`",
        ) from e
    return cast("R", value)


def _sync_scope(word: str) -> Scope | None:
    """The scope of the sync workflow that is running; None outside a run."""
    scope = calling_scope(f"sync.{word}")
    if (scope is not None and scope.owner > 0) or (scope is None and _in_event_loop()):
        fix = "await the call" if word == "run" else f"write `await durable.{word}(...)`"
        raise NotInWorkflow(
            f"sync.{word} was called in async code, where it would block the event loop", hint=fix
        )
    return scope


def _in_event_loop() -> bool:
    try:
        anyio.get_current_task()
    except anyio.NoEventLoopError:
        return False
    return True


def _block(scope: Scope | None, work: Callable[[], Awaitable[T]]) -> T:
    if scope is not None:
        return scope.execution.from_thread(scope, work)

    async def plain() -> T:
        return await work()

    return anyio.run(plain)


def _in_branches(fn: Callable[..., Any], limit: int) -> Callable[[Any], Awaitable[Any]]:
    """The function as a branch makes it: awaited, or in a thread that owns the branch's scope."""
    if hasattr(fn, "call") or inspect.iscoroutinefunction(fn):
        return fn
    # Threads of their own: a branch that waited for a thread of the run's pool, while the run
    # waits for its branches, could wait for ever.
    threads = anyio.CapacityLimiter(max(1, limit))

    async def branch(item: Any) -> Any:
        place = here.get()
        of = place.execution.threads if isinstance(place, Scope) else None
        return await in_thread(_own, place, fn, item, limiter=threads, of=of)

    return branch


def _own(place: object, fn: Callable[[T], U], item: T) -> U:
    if not isinstance(place, Scope):
        return fn(item)
    with place.entered():
        return fn(item)


# -- the blocking client -------------------------------------------------------------------------


class Answer(msgspec.Struct, Generic[T], frozen=True):
    """What comes back from the event loop.

    RunCancelled is no Exception: raised in a portal's task, it would end the portal.
    """

    value: T | None = None
    cancelled: RunCancelled | None = None

    def given(self) -> T:
        """The value, or the cancellation raised."""
        if self.cancelled is not None:
            raise self.cancelled
        return cast("T", self.value)


async def answer(work: Callable[[], Awaitable[T]]) -> Answer[T]:
    """Do the work; whoever asked raises what it raised."""
    try:
        return Answer(value=await work())
    except RunCancelled as e:
        return Answer(cancelled=e)


class Portal(Protocol):
    """A way into an event loop; `anyio.from_thread.BlockingPortal` is one."""

    def call(self, func: Callable[[], Awaitable[T]], /) -> T: ...

    def wrap_async_context_manager(
        self, cm: contextlib.AbstractAsyncContextManager[T], /
    ) -> contextlib.AbstractContextManager[T]: ...


class _Bridge:
    """An event loop in a thread, and what is awaited in it."""

    def __init__(self, portal: Portal) -> None:
        self._portal_or_none: Portal | None = portal

    def close(self) -> None:
        """The event loop ends."""
        self._portal_or_none = None

    @property
    def _portal(self) -> Portal:
        if self._portal_or_none is None:
            raise UsageError(
                "the client is closed", hint="write `with sync.connect() as client:` around its use"
            )
        return self._portal_or_none

    def call(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        work = functools.partial(fn, *args, **kwargs)
        return self.wrapped(self._portal.call(functools.partial(answer, work)).given())

    def wrapped(self, value: Any) -> Any:
        """What has coroutines becomes its blocking counterpart; anything else stays."""
        for kind in type(value).__mro__:
            if kind in _TWINS:
                return _TWINS[kind](self, value)
        if isinstance(value, AsyncIterator):
            return self.iterate(value)
        if isinstance(value, contextlib.AbstractAsyncContextManager):
            return self.enter(value)
        return value

    @contextlib.contextmanager
    def enter(self, manager: contextlib.AbstractAsyncContextManager[Any]) -> Iterator[Any]:
        """An async context manager for `with`."""
        with _entered(self._portal, manager) as value:
            yield self.wrapped(value)

    def iterate(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        async def next_item() -> Any:
            return await anext(items, _END)

        while (item := self._portal.call(next_item)) is not _END:
            yield item


@contextlib.contextmanager
def _entered(portal: Portal, manager: contextlib.AbstractAsyncContextManager[T]) -> Iterator[T]:
    cancelled: RunCancelled | None = None
    with portal.wrap_async_context_manager(manager) as value:
        try:
            yield value
        except RunCancelled as e:
            cancelled = e  # see `Answer`
    if cancelled is not None:
        raise cancelled


_END = object()


if TYPE_CHECKING:
    # The signatures alone: what they do is generated from the async classes, and a test compares
    # the two.

    class Handle(Generic[R]):
        """A handle whose methods block; see `durable.client.Handle`."""

        def __init__(self, bridge: _Bridge, wrapped: async_client.Handle[R]) -> None: ...
        @property
        def id(self) -> str: ...
        @property
        def instance(self) -> str: ...
        @property
        def workflow(self) -> str: ...
        @property
        def version(self) -> str: ...
        @property
        def queue(self) -> str: ...
        def result(self, timeout: Duration | None = None) -> R: ...
        @overload
        def cancel(
            self, *, reason: str = "", wait: Literal[False] = False, timeout: Duration | None = None
        ) -> async_client.CancelAnswer: ...
        @overload
        def cancel(
            self, *, reason: str = "", wait: Literal[True], timeout: Duration | None = None
        ) -> async_client.Ended: ...
        def cancel(
            self, *, reason: str = "", wait: bool = False, timeout: Duration | None = None
        ) -> async_client.CancelAnswer | async_client.Ended: ...
        def send(
            self, name: str, value: object = None, *, key: str | None = None
        ) -> async_client.SendAnswer: ...
        def status(self) -> async_client.Status: ...
        def steps(self) -> list[async_client.StepSummary]: ...
        def published(self) -> dict[str, object]: ...

    class Lease:
        """A lease whose methods block; see `durable.leases.Lease`."""

        def __init__(self, bridge: _Bridge, wrapped: leases.Lease) -> None: ...
        def __bool__(self) -> Literal[True]: ...
        @property
        def key(self) -> str: ...
        @property
        def label(self) -> str: ...
        @property
        def epoch(self) -> int: ...
        @property
        def ttl(self) -> float: ...
        @property
        def holder(self) -> str: ...
        @property
        def state(self) -> Any: ...
        @property
        def held(self) -> bool: ...
        @property
        def lost(self) -> str: ...
        def renew(self) -> None: ...
        def update_state(self, value: object) -> None: ...
        def change_state(self, fn: Callable[[Any], Any]) -> None: ...
        def release(self, state: object = KEEP) -> None: ...
        def hand_over(self) -> str: ...

    class Document:
        """A document whose methods block; see `durable.documents.Document`."""

        def __init__(self, bridge: _Bridge, wrapped: documents.Document) -> None: ...
        @property
        def key(self) -> str: ...
        def read(self) -> Snapshot | None: ...
        def update(self, fn: Callable[[Any], Any]) -> Any: ...
        def delete(self, generation: int) -> bool: ...

    class Catalog(Generic[T]):
        """A catalog whose methods block; see `durable.catalog.Catalog`."""

        def __init__(self, bridge: _Bridge, wrapped: catalog.Catalog[T]) -> None: ...
        def get(self, key: str) -> T | None: ...
        def list(self, prefix: str = "") -> Iterator[T]: ...

    class Leases(Catalog[LeaseEntry]):
        """All leases, with methods that block; see `durable.leases.Leases`."""

        def attach(self, key: str, token: str, *, renew: bool = True) -> Lease: ...
        def release(self, key: str, *, force: bool = False) -> None: ...
        def cooperative_write(self, key: str, fn: Callable[[Any], Any]) -> Any: ...

    class Schedules:
        """All schedules, with methods that block; see `durable.client.Schedules`."""

        def __init__(self, bridge: _Bridge, wrapped: async_client.Schedules) -> None: ...
        def create(
            self,
            name: str,
            schedule: Schedule,
            workflow: WorkflowFunction[P, R],
            /,
            *args: P.args,
            **kwargs: P.kwargs,
        ) -> async_client.ScheduleSummary: ...
        def get(self, name: str) -> async_client.ScheduleSummary: ...
        def list(self) -> Iterator[async_client.ScheduleSummary]: ...
        def pause(self, name: str) -> None: ...
        def resume(self, name: str) -> None: ...
        def trigger(self, name: str) -> str: ...
        def backfill(
            self, name: str, start: datetime, end: datetime, *, limit: int = BACKFILL_MAX
        ) -> tuple[str, ...]: ...
        def remove(self, name: str) -> None: ...

    class Locks:
        """The locks of singletons, with methods that block; see `durable.client.Locks`."""

        def __init__(self, bridge: _Bridge, wrapped: async_client.Locks) -> None: ...
        def list(self) -> Iterator[async_client.LockSummary]: ...
        def release(self, key: str, *, force: bool = False) -> None: ...

    class Queues:
        """All queues, with methods that block; see `durable.client.Queues`."""

        def __init__(self, bridge: _Bridge, wrapped: async_client.Queues) -> None: ...
        def list(self) -> Iterator[async_client.QueueSummary]: ...
        def paused_workflows(self) -> tuple[str, ...]: ...
        def pause(self, *, queue: str | None = None, workflow: str | None = None) -> None: ...
        def resume(self, *, queue: str | None = None, workflow: str | None = None) -> None: ...

    class Coordination:
        """The client's words for coordination; see `durable.client.Coordination`."""

        @property
        def claims(self) -> Catalog[Claim]: ...
        @property
        def docs(self) -> Catalog[Snapshot]: ...
        @property
        def leases(self) -> Leases: ...
        def claim(self, key: str, value: object, *, label: str | None = None) -> ClaimResult: ...
        @overload
        def once(
            self, key: str, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
        ) -> R: ...
        @overload
        def once(self, key: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
        def once(
            self, key: str, fn: Callable[P, Awaitable[R] | R], /, *args: P.args, **kwargs: P.kwargs
        ) -> R: ...
        def settle(
            self, key: str, value: object = None, *, happened: bool = True, by: str = ""
        ) -> None: ...
        def doc(self, key: str, *, label: str | None = None) -> Document: ...
        def lease(
            self,
            key: str,
            *,
            ttl: Duration | Terms = TTL_DEFAULT,
            label: str | None = None,
            state_fn: Callable[[Any], Any] | None = None,
            renew: bool = True,
        ) -> Lease | Taken | Refuse: ...
        def hold(
            self,
            key: str,
            *,
            ttl: Duration | Terms = TTL_DEFAULT,
            label: str | None = None,
            state_fn: Callable[[Any], Any] | None = None,
            waiting: bool = False,
            timeout: Duration | None = WAIT_DEFAULT,
        ) -> contextlib.AbstractContextManager[Lease]: ...

    class Repair:
        """The client's words for runs that went wrong; see `durable.client.repair.Repair`."""

        def retry(self, id: str, *, reason: str = "", by: str = "") -> Handle[Any]: ...
        def restart(self, id: str, *, reason: str = "", by: str = "") -> Handle[Any]: ...
        def fork(
            self,
            id: str,
            before: str,
            *,
            new_id: str | None = None,
            input: msgspec.Raw | None = None,
            reason: str = "",
            by: str = "",
        ) -> Handle[Any]: ...
        def skip(
            self, id: str, path: str, value: object, *, reason: str = "", by: str = ""
        ) -> Handle[Any]: ...
        def release(self, id: str, *, force: bool = False) -> bool: ...
        def purge(self, id: str, *, force: bool = False) -> int: ...
        def replay(
            self,
            id: str,
            workflow: WorkflowFunction[Any, Any] | None = None,
            *,
            timeout: Duration | None = LIMIT,
        ) -> Replay: ...

    class Client(Coordination, Repair):
        """A client whose methods block; see `durable.client.Client`."""

        def __init__(self, bridge: _Bridge, wrapped: async_client.Client) -> None: ...
        def start(
            self, workflow: WorkflowFunction[P, R], /, *args: P.args, **kwargs: P.kwargs
        ) -> Handle[R]: ...
        def run(
            self, workflow: WorkflowFunction[P, R], /, *args: P.args, **kwargs: P.kwargs
        ) -> R: ...
        @property
        def schedules(self) -> Schedules: ...
        @property
        def queues(self) -> Queues: ...
        @property
        def locks(self) -> Locks: ...
        def get(self, id: str) -> Handle[Any]: ...
        def list(
            self,
            *,
            workflow: str | None = None,
            status: str | None = None,
            limit: int | None = None,
        ) -> Iterator[async_client.RunSummary]: ...

else:

    def _blocking(cls: type, *bases: type) -> type:
        """A class with the public methods and properties of an async one, which block."""
        members = {
            name: _blocking_member(name, member)
            for name, member in vars(cls).items()
            if not name.startswith("_")
        }
        members["__doc__"] = f"Blocks where `{cls.__module__}.{cls.__name__}` is awaited."
        return type(cls.__name__, bases or (_Blocking,), {**members, "__module__": __name__})

    class _Blocking:
        def __init__(self, bridge: _Bridge, wrapped: object) -> None:
            self._bridge = bridge
            self._wrapped = wrapped

        def __repr__(self) -> str:
            return f"<blocking {self._wrapped!r}>"

        def __class_getitem__(cls, item: object) -> type:
            return cls

    def _blocking_member(name: str, member: Any) -> Any:
        # Looked up on the object: its class may be a more special one.
        if isinstance(member, property):
            return property(
                lambda self: self._bridge.wrapped(getattr(self._wrapped, name)), doc=member.__doc__
            )

        @functools.wraps(member)
        def method(self: _Blocking, *args: Any, **kwargs: Any) -> Any:
            bound = getattr(self._wrapped, name)
            if inspect.iscoroutinefunction(member):
                return self._bridge.call(bound, args, kwargs)
            return self._bridge.wrapped(bound(*args, **kwargs))

        return method

    Handle = _blocking(async_client.Handle)
    Lease = _blocking(leases.Lease)
    Document = _blocking(documents.Document)
    Catalog = _blocking(catalog.Catalog)
    Leases = _blocking(leases.Leases, Catalog)
    Schedules = _blocking(async_client.Schedules)
    Queues = _blocking(async_client.Queues)
    Locks = _blocking(async_client.Locks)
    Coordination = _blocking(async_client.Coordination)
    Repair = _blocking(repair.Repair)
    Client = _blocking(async_client.Client, Coordination, Repair)

# What has methods to await, and its blocking counterpart.
_TWINS: dict[type, Callable[[_Bridge, Any], object]] = {
    async_client.Handle: Handle,
    catalog.Catalog: Catalog,
    documents.Document: Document,
    leases.Lease: Lease,
    leases.Leases: Leases,
    async_client.Locks: Locks,
    async_client.Queues: Queues,
    async_client.Schedules: Schedules,
}


def blocking(client: async_client.Client, portal: Portal) -> Client:
    """A blocking client over an async one that lives in the event loop of `portal`."""
    return Client(_Bridge(portal), client)


@contextlib.contextmanager
def connect(
    url: str | None = None, *, patience: float | None = 30.0, create: bool = True
) -> Iterator[Client]:
    """A blocking client of the store at `url`, for as long as the `with` block lasts.

    Arguments and errors as of `durable.connect`.
    """
    with anyio.from_thread.start_blocking_portal() as portal:
        opened = async_client.connect(url, patience=patience, create=create)
        with _entered(portal, opened) as client:
            bridge = _Bridge(portal)
            try:
                yield Client(bridge, client)
            finally:
                bridge.close()
