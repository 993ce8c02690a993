"""New instances of runs: a folder with what is kept of the old one, then `start`, then a wake.

The folder comes first and `start` last, by compare-and-swap: until then nobody looks into the
folder, and from then on the old instance is over (see `protocol.instances` for what is kept). A
process that dies in between leaves a folder that no `start` names; purging the run removes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from typing import Any

import msgspec

from durable.client import offspring, reading
from durable.errors import Conflict
from durable.protocol import instances, names, records
from durable.protocol.names import Fact
from durable.protocol.records import NEVER, Fork, Start, Step
from durable.runtime import admission, flags, markers, timers
from durable.runtime.branches import map_in
from durable.runtime.children import Started, wake_parent
from durable.runtime.facts import Facts, load_older
from durable.runtime.starting import random_id
from durable.store import Refused, Store, Stored

COPIES_AT_ONCE = 16


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """What the folder of a new instance is to hold.

    Attributes:
        source: the id of the run whose record is copied; `facts` are its.
        run: the id of the run that the new instance is of.
        kept: paths of the calls whose records are copied.
        until: only waits that began before are copied, in store time, unless they have an outcome.
        said: who does it and why; shown among the run's epochs.
        extra: a record that the old instance does not have.
    """

    store: Store
    source: str
    facts: Facts
    run: str
    instance: str
    kept: Collection[str]
    said: str
    until: float = math.inf
    extra: Step | None = None

    async def make(self) -> None:
        """Fill the folder; twice is as once."""
        store, facts = self.store, self.facts
        await self._copy_kept()
        for take in instances.renumbered(facts.takes, self.kept):
            await self._create(names.take(self.run, self.instance, take.k), take.nonce, take)
        for group in instances.regrouped(facts.groups, self.kept):
            await self._create(names.group(self.run, self.instance, group.k), group.nonce, group)
        steps = [step for step in facts.outcomes() if step.path in self.kept]
        if self.extra is not None:
            steps.append(self.extra)
            name = names.step(self.run, self.instance, self.extra.path)
            await self._create(name, self.extra.nonce, self.extra)
        claim = instances.closing_epoch(
            facts.all_epochs(),
            steps,
            said=self.said,
            nonce=store.system.token(),
            now=store.now(),
            patches=facts.journal().patches if self.kept else (),
        )
        name = names.epoch(self.run, self.instance, claim.epoch)
        await self._create(name, claim.nonce, claim)

    async def _create(self, name: str, nonce: str, record: msgspec.Struct) -> None:
        await self.store.create(name, records.encode(record), nonce=nonce)

    async def _copy_kept(self) -> None:
        folder = names.instance_folder(self.source, self.facts.start.instance)
        target = names.instance_folder(self.run, self.instance)

        async def copy(stored: Stored) -> None:
            await self.store.copy(stored, target + stored.name.removeprefix(folder))

        listed = [stored async for stored in self.store.list(folder)]
        kinds = [(names.parse_fact(self.source, stored.name), stored) for stored in listed]
        keeps = self._chooser()
        await map_in(None, copy, [s for fact, s in kinds if keeps(fact)], COPIES_AT_ONCE)
        # One after the other: the order of events is that of their creation.
        events = [s for fact, s in kinds if fact is not None and fact.kind == "events"]
        await map_in(None, copy, sorted(events, key=lambda s: (s.created, s.name)), 1)

    def _open_waits(self) -> set[str]:
        """Waits of the kept past that go on; they keep their deadlines.

        Those for a lock or a slot are no part of it: the new instance stands in line anew.
        """
        if not self.kept:
            return set()
        recorded = {step.path for step in self.facts.outcomes()}
        return {
            wait.path
            for wait in self.facts.waits
            if wait.path not in recorded
            and wait.path not in admission.PATHS
            and wait.time < self.until
        }

    def _chooser(self) -> Callable[[Fact | None], bool]:
        kept = {names.path_part(path) for path in self.kept}
        waits = kept | {names.path_part(path) for path in self._open_waits()}
        has_order = bool(self.kept) or self.run == self.source
        epochs = {str(claim.epoch) for claim in self.facts.epochs if has_order}

        def keeps(fact: Fact | None) -> bool:
            match fact.kind if fact is not None else "":
                case "steps":
                    return fact is not None and fact.rest in kept
                case "undo":  # what another run has done is not the fork's to take back
                    return fact is not None and fact.rest in kept and self.run == self.source
                case "waits":
                    return fact is not None and fact.rest in waits
                case "epochs":  # without them nobody knows in which order records are
                    return fact is not None and fact.rest in epochs
            return False

        return keeps


def forked(facts: Facts, start: Start) -> Start:
    """The request of a fork: from the end of what it shares on it has a chance of its own."""
    fork = Fork(start.instance, instances.closing_number(facts.all_epochs()))
    return msgspec.structs.replace(start, forks=[*start.forks, fork])


def anew(store: Store, start: Start, *, keeps: bool, **changes: Any) -> Start:
    """The same request for a new instance, whose time to its deadline begins now.

    Args:
        start: of the old instance. If it was a child, its parent is over or has seen the last of
            it; so nobody's end ends the new instance.
        keeps: whether records of it are kept. They were made with its time and its chance, so
            these stay.
        changes: other fields.
    """
    now = store.now()
    if start.debounce is not None:  # nothing holds it back; its claim is removed at its end
        closed = msgspec.structs.replace(start.debounce, closed=True)
        start = msgspec.structs.replace(start, debounce=closed)
    if start.parent is not None:
        start = msgspec.structs.replace(
            start, parent=msgspec.structs.replace(start.parent, owned=False)
        )
    return msgspec.structs.replace(
        start, instance=random_id(store.system), nonce=store.system.token(), created=now,
        deadline=now + start.deadline - start.created if start.deadline else NEVER,
        origin=start.first() if keeps else None, forks=start.forks if keeps else [],
        **changes,
    )  # fmt: skip


async def replace(
    store: Store,
    run: str,
    facts: Facts,
    kept: Collection[str],
    *,
    said: str,
    extra: Step | None = None,
) -> Start:
    """Make a new instance of the run, with the records of the calls at the `kept` paths.

    Args:
        facts: of the present instance, which is over or stuck.
        said: who does it and why.
        extra: a record that the old instance does not have.

    Returns:
        The `start` that now names the new instance.

    Raises:
        Conflict: somebody else replaced the instance meanwhile.
    """
    older = [facts]
    if facts.is_untouched():  # whoever made it may have died before telling anybody
        older += await load_older(store, run, facts.start)
    current = await _unchanged(store, run, facts.start)
    start = anew(store, facts.start, keeps=bool(kept))
    copy = Copy(
        store=store, source=run, facts=facts, run=run, instance=start.instance, kept=kept,
        said=said, extra=extra,
    )  # fmt: skip
    await copy.make()
    written = await store.replace(
        current.name, current.generation, records.encode(start),
        nonce=start.nonce, earlier=current.meta.get("nonce", ""),
    )  # fmt: skip
    if isinstance(written, Refused):
        raise _changed(run)
    known = offspring.started(facts)
    await _announce(store, run, start, older, [known[path] for path in known.keys() & kept])
    return start


async def announce(store: Store, run: str, facts: Facts) -> None:
    """Do again what follows the making of this instance: its maker may have died at it."""
    older = await load_older(store, run, facts.start)
    await _announce(store, run, facts.start, older, offspring.started(facts).values())


async def _announce(
    store: Store, run: str, start: Start, older: Iterable[Facts], kept: Collection[Started]
) -> None:
    """Tell all whom it concerns of a new instance. The marker comes last.

    Once it is there the run goes on, and nobody would ask for the rest again.
    """
    await flags.unflag(store, start.queue, run)
    for facts in older:
        await offspring.cancel(store, run, facts, kept)
        if facts.result is None:  # nobody brought it to its end, who would have done so
            await timers.clear(store, run, facts.start, facts.waits)
    if start.parent is not None:  # it may wait for the old instance's end
        await wake_parent(store, start.parent)
    await markers.wake(store, run, start, nonce=store.system.token)


async def _unchanged(store: Store, run: str, start: Start) -> Stored:
    """`start` as it stands, read after the folder: what was decided from that still holds."""
    stored = await store.read(names.start(run))
    if stored is None or reading.decode_start(run, stored).instance != start.instance:
        raise _changed(run)
    return stored


def _changed(run: str) -> Conflict:
    return Conflict(
        f"run {run!r} was restarted, retried or purged by somebody else meanwhile",
        hint=f"look at it again: `durable show {run}`",
        run=run,
    )
