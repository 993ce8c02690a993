"""The client: starts runs, runs them in this process, finds those that were started."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

import anyio
import anyio.abc

from durable.client import reading, requests, skipping
from durable.client.coordination import Coordination
from durable.client.handles import Handle, Looks, outcome_of, recorded
from durable.client.listing import RunList
from durable.client.locks import Locks
from durable.client.queues import Queues
from durable.client.repair import Repair
from durable.client.requests import Request
from durable.client.schedules import Schedules
from durable.configuration import code_version, settings
from durable.decorators import WorkflowFunction, code_for, workflows
from durable.errors import Conflict, StoreUnavailable, UsageError
from durable.protocol import records
from durable.protocol.records import Holder, LockRecord, Result, Start
from durable.runtime import keys, locks, markers, starting
from durable.runtime.closing import Stopped
from durable.runtime.definitions import WorkflowDefinition
from durable.runtime.identity import Options
from durable.runtime.keyed import Begun
from durable.runtime.surroundings import Observer
from durable.runtime.worker import Worker
from durable.store import Refused, Store, Written
from durable.store.opening import open_store

P = ParamSpec("P")
R = TypeVar("R")


UNWIND_TIMEOUT = 2.0  # seconds that a cancelled `run` waits for its run to be handed over


@contextlib.asynccontextmanager
async def connect(
    url: str | None = None,
    *,
    patience: float | None = 30.0,
    create: bool = True,
    observe: Observer | None = None,
) -> AsyncIterator[Client]:
    """A client of the store at `url`, for as long as the `async with` block lasts.

    Args:
        url: by default the environment's DURABLE_STORE, else `store` of `[tool.durable]` in the
            nearest pyproject.toml, else `sqlite:///.durable/durable.db`.
        patience: seconds for which a call that the store does not answer is repeated; None is
            for ever.
        create: make the database file of a `sqlite:` URL if there is none.
        observe: told of the progress of runs that execute here, in the event loop.

    Raises:
        UsageError: the URL is none of the accepted forms.
        StoreRefused: the store cannot be used as it is, or is not there and is not to be made.
    """
    found = settings(url, os.environ, Path.cwd())
    store = open_store(found.store, patience=patience, create=create)
    try:
        async with Client(store, observe=observe) as client:
            yield client
    finally:
        with anyio.CancelScope(shield=True):
            await store.aclose()


class Client(Coordination, Repair):
    """Starts runs and finds them again. An asynchronous context manager.

    Args:
        store: where the runs are. Left open at the end.
        observe: told of the progress of runs that execute here, in the event loop.
        options: of the worker that `run` uses, which by default has locks in the host's runtime
            folder and the version of the code that defines the workflows; and whether leases
            are renewed in a thread.
    """

    def __init__(
        self, store: Store, *, observe: Observer | None = None, options: Options | None = None
    ) -> None:
        in_thread = options is None or options.renew_in_thread
        super().__init__(store, lambda: self._tasks, renew_in_thread=in_thread)
        self._observe = observe
        self._options = options
        self._schedules = Schedules(self.store, self._code_version)
        self._queues = Queues(self.store)
        self._locks = Locks(self.store)
        self._workflows: dict[str, WorkflowDefinition] = {}
        self._version = ""
        self._worker: Worker | None = None
        self._hiring = anyio.Lock()
        self._tasks: anyio.abc.TaskGroup | None = None

    async def __aenter__(self) -> Self:
        self._tasks = await anyio.create_task_group().__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        assert self._tasks is not None
        tasks, self._tasks = self._tasks, None
        self._holder.close()
        if self._worker is not None:
            self._worker.stop()
        if isinstance(error, anyio.get_cancelled_exc_class()):
            return await tasks.__aexit__(kind, error, traceback)
        # An error of the caller's is not one of the group's: it goes up as it is.
        await tasks.__aexit__(None, None, None)
        return None

    # -- starting ----------------------------------------------------------------------------------

    async def start(
        self, workflow: WorkflowFunction[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Handle[R]:
        """Start a run and leave its execution to a worker.

        Once this returns the run is accepted. Starting the same id again, with the same workflow
        and input, returns the same run.

        Args:
            workflow: `checkout`, or `checkout.options(id=..., queue=..., tags=...)`.
            args: of the workflow function.
            kwargs: of the workflow function.

        Raises:
            InvalidArguments: they do not fit the function, or cannot be stored.
            Conflict: the id belongs to another workflow or another input.
            StoreUnavailable: the run may have started; ask again with the same id.

        With `checkout.options(dedup_key=...)` the handle may be that of another run, which
        carries the key and is not over; with a `debounce_key`, of one that has not begun, and
        will do what was asked for here.
        """
        request = await self._timed(self._request(workflow, args, kwargs))
        other = await skipping.in_the_way(self.store, request)
        if other is not None:
            return await self._handle_in(other, request.definition)
        with _may_have_started(request.run):
            if keys.has_one(request.start):
                begun = await keys.start_with(self.store, request.run, request.start)
                return self._handle_of_begun(request, begun)
            started = await starting.start(self.store, request.run, request.start)
            started = await self._revived(request, started)
        return self._handle_of(request, started)

    async def run(
        self, workflow: WorkflowFunction[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Start a run and execute it in this process; returns what the workflow returns.

        An id that exists goes on where its record ends, is waited for while a live worker has
        it, or gives its recorded outcome. Cancelled, it hands the run back as it stands.

        Raises:
            RunFailed: the workflow raised; `__cause__` is its error, rebuilt.
            RunCancelled: the run was cancelled.
            NeedsAttention: the run waits for a human or for other code.
            Conflict: the id belongs to another workflow or another input.
            StoreError: the store does not answer, or refuses what has to be recorded.
        """
        request = await self._timed(self._request(workflow, args, kwargs))
        other = await skipping.in_the_way(self.store, request)
        if other is not None:
            joined: Handle[R] = await self._handle_in(other, request.definition)
            return await joined.result()
        worker = await self._hire(request.definition)
        try:
            handle: Handle[R] = await self._start_here(worker, request)
            if handle.id != request.run:
                return await handle.result()
            if handle.queue != request.start.queue:
                # It exists in another queue, where its own marker is: this one is not its.
                await self._let_go(worker, request.run)
            return outcome_of(handle, await self._carry(worker, handle))
        except (anyio.get_cancelled_exc_class(), Conflict):
            await self._let_go(worker, request.run)
            raise

    # -- finding -----------------------------------------------------------------------------------

    async def get(self, id: str) -> Handle[Any]:
        """The handle of a run that was started before.

        Raises:
            NotFound: there is no run of that id.
        """
        start = await reading.read_start(self.store, id)
        return Handle(self.store, id, start, code_for(start))

    def list(
        self,
        *,
        workflow: str | None = None,
        status: str | None = None,
        limit: int | None = None,
    ) -> RunList:
        """Runs, to be iterated with `async for`: those not over first, then the newest.

        Args:
            workflow: only runs of the workflow of that name.
            status: only runs of that status.
            limit: at most so many.
        """
        return RunList(self.store, workflow=workflow, status=status, limit=limit)

    @property
    def schedules(self) -> Schedules:
        """All schedules: `create`, `get`, `list`, `pause`, `resume`, `trigger`, `backfill`,
        `remove`.
        """
        return self._schedules

    @property
    def locks(self) -> Locks:
        """The locks of singletons: `list`, `release`."""
        return self._locks

    @property
    def queues(self) -> Queues:
        """All queues: `list`, `pause`, `resume`."""
        return self._queues

    # -- inside ------------------------------------------------------------------------------------

    def _request(
        self, workflow: WorkflowFunction[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Request:
        return requests.build(
            workflow, args, kwargs,
            system=self.store.system, version=self._code_version(),
        )  # fmt: skip

    async def _timed(self, request: Request) -> Request:
        """The request at the store's time: until a first answer that is this machine's, at best."""
        await self.store.check()
        return request.at(self.store.now())

    def _code_version(self) -> str:
        known = workflows()
        if known.keys() - self._workflows.keys() or not self._version:
            self._version = code_version(known.values())
        self._workflows.update(known)
        return self._version

    def _handle_of(self, request: Request, started: Written | Refused) -> Handle[Any]:
        start = request.start
        if isinstance(started, Refused):
            assert started.current is not None
            start = reading.decode_start(request.run, started.current)
            requests.check_same(request, start)
        return Handle(self.store, request.run, start, request.definition)

    async def _revived(self, request: Request, started: Written | Refused) -> Written | Refused:
        """The id of a purged run is free: ours is a new run in the place of the tombstone."""
        while isinstance(started, Refused) and started.current is not None:
            there = started.current
            if not reading.decode_start(request.run, there).tombstone:
                break
            started = await self.store.replace(
                there.name, there.generation, records.encode(request.start),
                nonce=request.start.nonce, earlier=there.meta.get("nonce", ""),
            )  # fmt: skip
            if isinstance(started, Written):
                # A worker may have seen the tombstone and be about to let the marker go.
                token = self.store.system.token
                await markers.wake(self.store, request.run, request.start, nonce=token)
        return started

    def _handle_of_begun(self, request: Request, begun: Begun) -> Handle[Any]:
        """Of the run that carries the key: this one, or another."""
        if begun.run != request.run:
            return Handle(self.store, begun.run, begun.start, code_for(begun.start))
        if not begun.start.is_collecting:  # else its input may be a later start's by now
            requests.check_same(request, begun.start)
        return Handle(self.store, request.run, begun.start, request.definition)

    async def _start_here(self, worker: Worker, request: Request) -> Handle[Any]:
        """Start the run and hold it; with a key it may be another run, left where it is."""

        async def begin(store: Store, run: str, start: Start) -> Written | Refused:
            if run == request.run:
                return await worker.start_here(run, start)
            return await starting.start(store, run, start)

        with _may_have_started(request.run):
            if keys.has_one(request.start):
                begun = await keys.start_with(self.store, request.run, request.start, begin=begin)
                return self._handle_of_begun(request, begun)
            written = await begin(self.store, request.run, request.start)
            written = await self._revived(request, written)
        return self._handle_of(request, written)

    async def _handle_in(self, held: LockRecord, definition: WorkflowDefinition) -> Handle[Any]:
        """Of the run that holds a singleton's lock."""
        run, start = await reading.joined(self.store, Holder(held.run, held.instance, held.since))
        return Handle(self.store, run, start, definition)

    async def _hire(self, definition: WorkflowDefinition) -> Worker:
        """The worker of this client, which carries only what it is handed."""
        self._workflows.setdefault(definition.name, definition)
        worker = self._worker
        if worker is not None and worker.refusal is None and self._tasks is not None:
            return worker
        async with self._hiring:
            if self._tasks is None:
                raise UsageError(
                    "client.run needs an open client",
                    hint="write `async with connect() as client:`",
                )
            if self._worker is None or self._worker.refusal is not None:
                worker = Worker(self.store, self._workflows, self._worker_options())
                # Cut off here, `start` would wait for the end of work that is never told to stop.
                with anyio.CancelScope(shield=True):
                    await self._tasks.start(_work, worker)
                self._worker = worker
            return self._worker

    def _worker_options(self) -> Options:
        if self._options is not None:
            return self._options
        folder = locks.runtime_folder(self.store.backend.lock_folder, os.environ)
        # No queues: it is no help to runs that wait in one, and must not look like it. No grace:
        # who cancels wants to go on; a body that is cut off records nothing and runs again.
        return Options(
            queues=(),
            grace=0,
            version=self._code_version(),
            runtime_folder=folder,
            observe=self._observe,
        )

    async def _carry(self, worker: Worker, handle: Handle[Any]) -> Result:
        """Until the run is over, here or wherever a live worker holds it."""
        looks: Looks | None = None
        while True:
            runner = worker.runners.get(handle.id)
            carried = await worker.pursue(handle.queue, handle.id)
            if runner is not None and runner.result is not None:
                if runner.result.joined is not None:
                    return await recorded(handle)
                return runner.result  # known without a read
            with contextlib.suppress(TimeoutError):
                return await recorded(handle, timeout=0)
            if self._tasks is None:
                raise UsageError(
                    f"the client was closed while it ran {handle.id!r}; what is recorded stays",
                    hint="leave the `async with` block after `run` has returned",
                    run=handle.id,
                )
            if worker.refusal is not None:
                refusal = worker.refusal  # of many runs, each of which raises an error of its own
                raise type(refusal)(refusal.message, hint=refusal.hint) from refusal
            if not carried:
                looks = looks or Looks(self.store.pace)
                await looks.again()

    async def _let_go(self, worker: Worker, run: str) -> None:
        """Stop carrying the run: it stays as it is recorded, for whoever takes it next."""
        runner = worker.runners.get(run)
        if runner is None:
            return
        runner.stop(Stopped("drain"))
        with anyio.CancelScope(shield=True), anyio.move_on_after(UNWIND_TIMEOUT):
            await worker.pursue(runner.held.marker.queue, run)


async def _work(
    worker: Worker, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    # It ends by being stopped, never by a cancellation from around the client: stopped, it hands
    # over what it holds.
    with anyio.CancelScope(shield=True):
        await worker.run(polling=False, task_status=task_status)


@contextlib.contextmanager
def _may_have_started(run: str) -> Iterator[None]:
    try:
        yield
    except (StoreUnavailable, BaseExceptionGroup) as e:
        leaf: BaseException = e
        while isinstance(leaf, BaseExceptionGroup):
            leaf = leaf.exceptions[0]
        if not isinstance(leaf, StoreUnavailable):
            raise leaf from None
        raise StoreUnavailable(
            f"run {run!r} may have started, the store did not say: {leaf.message}",
            hint="ask again with the same id: it is then started, or found to be",
            run=run,
        ) from e
