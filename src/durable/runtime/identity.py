"""A worker's time under one id: its lease, its lock file, and what must end with them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import msgspec

from durable.protocol.leases import TTL_DEFAULT, Terms
from durable.protocol.records import Lease, Start
from durable.runtime.custody import Work
from durable.runtime.definitions import StepDefinition
from durable.runtime.lease import LeaseKeeper
from durable.runtime.locks import LockFile
from durable.runtime.surroundings import Observer, Surroundings, own_body
from durable.store import Refused, Store, Written
from durable.system import always_park, boot_id, label, process_id, watches


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker works.

    Attributes:
        queues: where it looks for runs.
        concurrency: how many runs it holds at once.
        threads: how many sync step bodies run at once.
        terms: its lease's ttl and what follows from it, in seconds.
        grace: seconds that bodies in flight get when it is asked to stop.
        version: the version of the code it serves, as shown in attention hints.
        label: a name for people.
        runtime_folder: where lock files prove deaths on this host; None proves nothing.
        renew_in_thread: False renews as a task, for tests on a virtual clock.
        polls: False looks for work only when nudged, for tests on a virtual clock: each poll
            would be a stop on the way of time.
        schedules: whether it attends to schedules.
        observe: told of every call's progress, in the event loop.
        always_park: park every wait at once, however short; for tests. By default what
            the environment's DURABLE_ALWAYS_PARK says.
        body_of: the function that runs as a step's body; tests put others in its place.
        watch: warn of what workflows do that is not repeatable, see `watching`. By default what
            the environment's DURABLE_WATCH says.
    """

    queues: tuple[str, ...] = ("default",)
    concurrency: int = 100
    threads: int = 40
    terms: Terms = msgspec.field(default_factory=lambda: Terms.of(TTL_DEFAULT))
    grace: float = 8.0
    version: str = ""
    label: str = msgspec.field(default_factory=label)
    runtime_folder: Path | None = None
    renew_in_thread: bool = True
    polls: bool = True
    schedules: bool = True
    observe: Observer | None = None
    always_park: bool = msgspec.field(default_factory=always_park)
    body_of: Callable[[StepDefinition], Callable[..., Any]] = own_body
    watch: bool = msgspec.field(default_factory=watches)


class Identity:
    """From a fresh random id to the loss, or the giving up, of the lease under it.

    Losing the lease is a cancel scope: `end()` cancels all that runs through `leased`.

    Args:
        on_lost: called once, in the event loop, when the lease is lost.
        describe_running: names the bodies in flight, for a warning.
        observe: told of every call's progress.
        recorded: told which run has recorded that a call has come further.
        crowded: whether the worker has no place for another run.
        launch: starts a child's run.
    """

    def __init__(
        self,
        store: Store,
        options: Options,
        *,
        tasks: anyio.abc.TaskGroup,
        on_lost: Callable[[str], None],
        describe_running: Callable[[], str],
        observe: Observer | None,
        recorded: Callable[[str], None],
        crowded: Callable[[], bool],
        launch: Callable[[Store, str, Start], Awaitable[Written | Refused]],
    ) -> None:
        # Ids are URL-safe tokens: `-` and `_` stay, so an id is part of a name as it is.
        self.id = store.system.token()
        folder = options.runtime_folder
        self._lock = LockFile.hold(folder, self.id) if folder is not None else None
        record = Lease(
            worker=self.id, ttl=0, margin=0, nonce="", label=options.label, pid=process_id(),
            boot=boot_id(), lock_file=self._lock.name if self._lock else "",
        )  # fmt: skip
        self.keeper = LeaseKeeper(
            store=store, system=store.system, terms=options.terms, record=record, on_lost=on_lost,
            task_group=None if options.renew_in_thread else tasks,
            describe_running=describe_running,
        )  # fmt: skip
        self.around = Surroundings(
            store=store.patient(None, before_write=self.keeper.held), system=store.system,
            trusted=self.keeper.trusted,
            steps=anyio.CapacityLimiter(options.threads),
            workflows=anyio.CapacityLimiter(options.concurrency),
            observe=observe, recorded=recorded, body_of=options.body_of, crowded=crowded,
            always_park=options.always_park, launch=launch,
        )  # fmt: skip
        self.over = False
        self._scopes: set[anyio.CancelScope] = set()

    @property
    def busy(self) -> bool:
        """Whether anything runs under the lease."""
        return bool(self._scopes)

    async def leased(self, work: Work) -> None:
        """Do something that must end with the lease."""
        with anyio.CancelScope() as scope:
            if self.over:
                scope.cancel()
            self._scopes.add(scope)
            try:
                await work()
            finally:
                self._scopes.discard(scope)

    def end(self) -> None:
        """The lease is gone: so is everything under it, and the lock that proved us alive."""
        self.over = True
        self.keeper.stop()
        for scope in list(self._scopes):
            scope.cancel()
        if self._lock is not None:
            self._lock.release()
            self._lock = None
