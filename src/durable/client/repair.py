"""The client's words for runs that went wrong: retry, restart, fork, skip, purge and others."""

from __future__ import annotations

import getpass
import os
from typing import Any, Literal

import msgspec

from durable.client import instances, offspring, purging, reading, substitutes
from durable.client.handles import Handle
from durable.client.reading import Status
from durable.client.replaying import LIMIT, Replay, compare, subject
from durable.decorators import WorkflowFunction, code_for
from durable.errors import Conflict, LeaseTaken, NeedsAttention
from durable.protocol import durations, names, records, texts
from durable.protocol import instances as rules
from durable.protocol.durations import Duration
from durable.protocol.records import Result, Start
from durable.runtime import flags, locks, markers
from durable.runtime.children import Started
from durable.runtime.facts import Facts
from durable.runtime.starting import random_id
from durable.runtime.sweeper import Sweeper
from durable.store import Refused, Store
from durable.system import label


class Repair:
    """Each verb says who did it and why: `by` (default: this user and host) and `reason`.

    Args:
        store: where the runs are.
    """

    store: Store

    async def retry(self, id: str, *, reason: str = "", by: str = "") -> Handle[Any]:
        """Let a failed or cancelled run go on from what failed.

        The run gets a new instance that keeps the recorded values. Calls that failed, were
        cancelled or were undone are made again, with all their attempts. A run that needs
        attention, that was imported, or that is parked is woken as it is; its deaths are no
        longer counted.

        Returns:
            The handle of the instance that goes on.

        Raises:
            NotFound: there is no run of that id.
            Conflict: the run has completed, or is not over; or somebody else changed it.
        """
        said = _said("retry", by, reason)
        facts = await reading.load(self.store, id)
        if _was_done(facts, "retry"):
            return await self._announce(id, facts)
        if facts.result is None:
            return await self._wake_stuck(id, facts)
        _check_failed(id, facts)
        kept = await self._successes(facts)
        start = await instances.replace(self.store, id, facts, kept, said=said)
        return _handle(self.store, id, start)

    async def restart(self, id: str, *, reason: str = "", by: str = "") -> Handle[Any]:
        """Run it again from the beginning, with the same input; nothing recorded is kept.

        So it does not matter if some of that is damaged.

        Raises:
            NotFound: there is no run of that id.
            Conflict: it is neither over nor stuck; or somebody else changed it.
        """
        said = _said("restart", by, reason)
        facts = await reading.load(self.store, id, damaged=True)
        if _was_done(facts, "restart"):
            return await self._announce(id, facts)
        if facts.result is None:
            await self._make_way(id, facts.start)
        start = await instances.replace(self.store, id, facts, (), said=said)
        return _handle(self.store, id, start)

    async def fork(
        self,
        id: str,
        before: str,
        *,
        new_id: str | None = None,
        input: msgspec.Raw | None = None,
        reason: str = "",
        by: str = "",
    ) -> Handle[Any]:
        """Start a new run that shares the past of this one up to a call.

        Args:
            id: of the run to fork, over or not.
            before: the path of the call from which the new run goes its own way, or a step's
                name for the first call of it.
            new_id: default: a random one.
            input: the new run's, encoded; default: the same.

        Raises:
            NotFound: there is no such run, or it has recorded no such call.
            Conflict: the new id is taken.
        """
        run = random_id(self.store.system) if new_id is None else new_id
        names.check_id(run)
        said = _said(f"fork of {id}", by, reason)
        facts = await reading.load(self.store, id)
        past = rules.before(facts.journal().order, before, id)
        kept = await offspring.kept(self.store, facts, past.paths, offspring.for_fork)
        given = facts.start.input if input is None else input
        if await self.store.read(names.start(run)) is not None:
            return await self._forked_before(run, f"fork of {id}", kept, given)
        start = instances.anew(
            self.store, facts.start, keeps=bool(kept), input=given,
            tags={**facts.start.tags, "forked-from": id}, parent=None, dedup_key="",
            debounce=None,
        )  # fmt: skip
        if kept:
            start = instances.forked(facts, start)
        copy = instances.Copy(
            store=self.store, source=id, facts=facts, run=run, instance=start.instance,
            kept=kept, said=said, until=past.until,
        )  # fmt: skip
        await copy.make()
        written = await self.store.create(
            names.start(run), records.encode(start), nonce=start.nonce
        )
        if isinstance(written, Refused):
            raise _taken(run)
        await markers.wake(self.store, run, start, nonce=self.store.system.token)
        return _handle(self.store, run, start)

    async def skip(
        self, id: str, path: str, value: object, *, reason: str = "", by: str = ""
    ) -> Handle[Any]:
        """Record a value for a call that cannot get one by itself, and let the run go on.

        A worker that executes the run is interrupted: another takes it, and begins bodies anew
        that were in flight.

        Args:
            path: of the call, as `durable show` or the error says it.
            value: what the call returns; without the step's annotation: builtins.
            reason: recorded with it, as `by` is.

        Raises:
            Conflict: the call has an outcome already, or the run has completed.
        """
        facts = await reading.load(self.store, id)
        recorded = next((step for step in facts.outcomes() if step.path == path), None)
        skipped = substitutes.outcome(self.store, facts, path, value, _said("skip", by, reason))
        if recorded is not None and substitutes.is_same(recorded, skipped) and facts.result is None:
            return await self._skipped_before(id, facts, path)
        if recorded is not None and (recorded.outcome == "value" or facts.result is None):
            raise Conflict(
                f"call {path!r} of run {id!r} has an outcome already: {recorded.outcome}",
                hint="what is recorded never changes; fork the run before that call instead",
                run=id,
            )
        if facts.result is not None:
            _check_failed(id, facts)
            kept = await self._successes(facts, but=path)
            said = _said(f"skip {path}", by, reason)
            start = await instances.replace(self.store, id, facts, kept, said=said, extra=skipped)
            return _handle(self.store, id, start)
        if not await substitutes.record(self.store, id, facts, skipped):
            raise Conflict(
                f"run {id!r} got on just now, perhaps with call {path!r}",
                hint="look at it, and skip the call if it still waits", run=id,
            )  # fmt: skip
        return await self._go_on_elsewhere(id, facts.start)

    async def release(self, id: str, *, force: bool = False) -> bool:
        """Take a run from a worker that holds it; False: nobody does.

        Args:
            force: also from a live one, which is fenced: the run's next owner has a higher epoch.

        Raises:
            NotFound: there is no run of that id.
            LeaseTaken: the holder is alive, and `force` is not given.
        """
        start = await reading.read_start(self.store, id)
        folder = locks.runtime_folder(self.store.backend.lock_folder, os.environ)
        sweeper = Sweeper(store=self.store, runtime_folder=folder)
        while (found := await markers.read(self.store, start.queue, id)) is not None:
            stored, marker = found
            if not marker.holder:
                return False
            dead = await sweeper.takeable(marker.holder)
            if not dead and not force:
                raise LeaseTaken(
                    f"run {id!r} is held by worker {marker.holder}, which is alive",
                    hint="stop that worker, or fence it: `durable release RUN --force`",
                    run=id,
                )
            why: Literal["drain", "takeover"] = "takeover" if dead else "drain"
            if await markers.unown(self.store, stored, marker, why=why):
                return True
        return False

    async def purge(self, id: str, *, force: bool = False) -> int:
        """Remove everything that is recorded of a run; the id is free again.

        Args:
            force: also if the run is not over. It is taken from the worker that executes it.

        Returns:
            How many objects were removed.

        Raises:
            NotFound: there is no run of that id.
            Conflict: it is not over, and `force` is not given; or somebody else changed it.
        """
        return await purging.purge(self.store, id, force=force)

    async def replay(
        self,
        id: str,
        workflow: WorkflowFunction[Any, Any] | None = None,
        *,
        timeout: Duration | None = LIMIT,
    ) -> Replay:
        """Compare code with a run's record; no body is executed and nothing is written.

        Args:
            workflow: the code; default: what this process has under the run's workflow name.
            timeout: after how long (seconds, a timedelta or text such as "1m") the difference is
                unknown, because the code waits for something that is not durable; None: it may
                last for ever. Code that blocks the event loop or swallows its cancellation keeps
                the caller longer.

        Raises:
            NotFound: there is no run of that id.
            UnknownWorkflow: this process has no such workflow.
            UsageError: the timeout cannot be read.
        """
        limit = None if timeout is None else durations.seconds(timeout)
        facts, definition = await subject(self.store, id, workflow)
        return await compare(self.store, id, facts, definition, limit=limit)

    # -- inside ------------------------------------------------------------------------------------

    async def _go_on_elsewhere(self, id: str, start: Start) -> Handle[Any]:
        await self._wake(id, start)
        await markers.take_away(self.store, start.queue, id)
        return _handle(self.store, id, start)

    async def _wake(self, id: str, start: Start) -> None:
        flagged = await flags.read(self.store, start.queue, id) is not None
        await markers.wake(self.store, id, start, flagged=flagged, nonce=self.store.system.token)

    async def _successes(self, facts: Facts, but: str = "") -> set[str]:
        """What a retry keeps; not asked again is the child whose end is to be found at `but`."""
        skipped = offspring.waited_for(facts, but)

        def keeps(child: Started, result: Result | None) -> bool:
            return child.run == skipped or offspring.for_retry(child, result)

        paths = rules.successes(facts.outcomes())
        return await offspring.kept(self.store, facts, paths, keeps)

    async def _wake_stuck(self, id: str, facts: Facts) -> Handle[Any]:
        # A parked run looks again and parks again; one that was imported has no timer yet.
        await self._make_way(id, facts.start, or_parked=True)
        if facts.is_untouched():
            return await self._announce(id, facts)
        await self._wake(id, facts.start)
        return _handle(self.store, id, facts.start)

    # -- asked again, because whoever asked first may have died at it ------------------------------

    async def _announce(self, id: str, facts: Facts) -> Handle[Any]:
        await markers.discard_damaged(self.store, facts.start.queue, id)
        await instances.announce(self.store, id, facts)
        return _handle(self.store, id, facts.start)

    async def _forked_before(
        self, run: str, said: str, kept: set[str], input: msgspec.Raw
    ) -> Handle[Any]:
        facts = await reading.load(self.store, run)
        there = {step.path for step in facts.outcomes()}
        same = there == kept and bytes(facts.start.input) == bytes(input)
        if not same or not _was_done(facts, said):
            raise _taken(run)
        await self._wake(run, facts.start)
        return _handle(self.store, run, facts.start)

    async def _skipped_before(self, id: str, facts: Facts, path: str) -> Handle[Any]:
        if facts.is_untouched():
            return await self._announce(id, facts)
        await substitutes.close_groups(self.store, id, facts, path)
        return await self._go_on_elsewhere(id, facts.start)

    async def _make_way(self, id: str, start: Start, *, or_parked: bool = False) -> None:
        """Nobody works on the run, and nobody will: it needs attention, or was never announced.

        A marker that keeps workers away because it cannot be read is removed.
        """
        try:
            status = await reading.read_status(self.store, id, start)
        except NeedsAttention:  # what tells of its end is damaged
            status = Status("needs-attention")
        stuck = status == "needs-attention" or status.interrupted
        if not stuck and not (or_parked and status == "parked"):
            raise Conflict(
                f"run {id!r} is not over: {status}", hint="wait for it, or cancel it first", run=id
            )
        await markers.discard_damaged(self.store, start.queue, id)


def _was_done(facts: Facts, said: str) -> bool:
    """Whether this very instance came of the same request, and nobody has worked on it since."""
    return facts.is_untouched() and facts.made_by.startswith(f"{said} by ")


def _check_failed(id: str, facts: Facts) -> None:
    assert facts.result is not None
    if facts.result.status == "completed":
        raise Conflict(
            f"run {id!r} has completed: there is nothing to retry",
            hint="restart it under the same id, or fork it from a call",
            run=id,
        )


def _handle(store: Store, run: str, start: Start) -> Handle[Any]:
    return Handle(store, run, start, code_for(start))


def _taken(run: str) -> Conflict:
    return Conflict(f"run id {run!r} is taken", hint="choose another one", run=run)


def _said(verb: str, by: str, reason: str) -> str:
    who = texts.check(by, "by") or f"{_user()} on {label()}"
    why = texts.check(reason, "reason")
    return f"{verb} by {who}" + (f": {why}" if why else "")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run under a number without a name
        return "somebody"
