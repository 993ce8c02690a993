"""Whether the hints that workers and lists go by match the facts in `runs/`.

Every hint may be missing or left over after a crash at the wrong moment; workers and clean-up put
most of that right by themselves. This walks the whole of `runs/`, which nothing else does, and
finds what nobody would come across.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from urllib.parse import unquote

import msgspec

from durable.client import purging, reading
from durable.client.listing import places_in_line
from durable.doctor.findings import Finding
from durable.errors import NeedsAttention
from durable.protocol import moments, names, records
from durable.protocol.records import Attention, History, Result, Start
from durable.protocol.singletons import ending
from durable.runtime import flags, markers, timers
from durable.runtime.facts import CorruptFact, decode_result, load
from durable.runtime.reading import record
from durable.store import Store, Stored

SHOWN = 5  # runs that a finding names
YOUNG = 600.0  # seconds: what was written since may be half of something that goes on

ANY = "*"  # stands for every instance of a run that cannot be read

_attention = msgspec.json.Decoder(Attention)


@dataclass
class _Run:
    """What `runs/` holds of one id."""

    id: str
    start: Stored | None = None
    results: dict[str, Stored] = field(default_factory=dict)  # by instance
    objects: dict[str, list[Stored]] = field(default_factory=dict)  # by instance


@dataclass
class _Trouble:
    """What is wrong with some runs, and what is done about it."""

    check: str
    said: str
    fix: str
    runs: list[str] = field(default_factory=list)

    def finding(self, *, repaired: bool) -> Finding:
        shown = ", ".join(self.runs[:SHOWN])
        more = f" and {len(self.runs) - SHOWN} more" if len(self.runs) > SHOWN else ""
        found = f"{self.said}: {shown}{more}"
        if repaired:
            return Finding(self.check, "note", f"{found}; repaired")
        return Finding(self.check, "warning", found, self.fix)


class RunsExamination:
    """One walk over `runs/`.

    Args:
        repair: put right what is found.
    """

    def __init__(self, store: Store, *, repair: bool) -> None:
        self._store = store
        self._repair = repair
        self._since = store.now()
        fix = "durable doctor --runs --repair"
        self._lost = _Trouble("lost", "not over, and no worker will look at them", fix)
        self._unlisted = _Trouble("unlisted", "over, but not in the history", fix)
        self._stale = _Trouble("attention", "over, but shown as needing attention", fix)
        self._half = _Trouble("purge", "purged only in part", fix)
        self._orphans = _Trouble("orphans", "with folders that no start names", fix)
        self._idle = _Trouble("leftover", "over, but shown as waiting", fix)
        self._damaged = _Trouble("damaged", "with objects that cannot be read", "durable show RUN")
        self._walked = 0
        self._open: dict[str, str] = {}  # which instance of a run is not over; empty: none

    async def findings(self) -> list[Finding]:
        """What was found, and with `repair` what was done."""
        hinted = await self._hinted()
        ended = {(run, instance) async for run, instance in self._history()}
        async for run in self._runs():
            self._walked += 1
            await self._look(run, hinted, ended)
        await self._look_at_attention()
        await self._look_at_waits()
        troubles = [
            self._lost, self._unlisted, self._stale, self._idle, self._half, self._orphans,
        ]  # fmt: skip
        found = [t.finding(repaired=self._repair) for t in troubles if t.runs]
        if self._damaged.runs:
            found.append(self._damaged.finding(repaired=False))
        return found or [Finding("runs", "ok", f"{self._walked} runs; hints and facts agree")]

    # -- what there is -----------------------------------------------------------------------------

    async def _hinted(self) -> set[str]:
        """Runs that somebody will look at, as hints have it."""
        found: set[str] = set()
        async for stored in self._store.list("live/"):
            found.add(names.marker_run(stored.name) or "")
        async for stored in self._store.list(names.TIMERS):
            found.add(names.timer_run(stored.name))
        async for stored in self._store.list("attention/"):
            found.add(names.last_part(stored.name))
        return found

    async def _history(self) -> AsyncIterator[tuple[str, str]]:
        decoder = msgspec.json.Decoder(History)
        async for stored in self._store.list("history/"):
            entry = await record(self._store, stored, decoder)
            if entry is not None:
                yield entry.run, entry.instance

    async def _runs(self) -> AsyncIterator[_Run]:
        """One after the other: names are listed in order."""
        run: _Run | None = None
        async for stored in self._store.list("runs/"):
            id = unquote(stored.name.split("/")[1])
            if run is None or run.id != id:
                if run is not None:
                    yield run
                run = _Run(id)
            _add(run, stored)
        if run is not None:
            yield run

    # -- what is wrong -----------------------------------------------------------------------------

    async def _look(self, run: _Run, hinted: set[str], ended: set[tuple[str, str]]) -> None:
        try:
            start = await self._start(run)
            if start is None:
                return
            result = await self._result(run, start.instance)
        except (CorruptFact, NeedsAttention):
            self._damaged.runs.append(run.id)
            self._open[run.id] = ANY
            return
        over = result is not None or start.tombstone
        self._open[run.id] = "" if over else start.instance
        await self._look_at_orphans(run, start, ended)
        if start.tombstone:
            if run.objects:
                self._half.runs.append(run.id)
                if self._repair:
                    await purging.purge(self._store, run.id)
        elif result is None:
            await self._look_at_unfinished(run, start, hinted)
        elif (run.id, start.instance) not in ended and result.time < self._since - YOUNG:
            self._unlisted.runs.append(run.id)
            if self._repair:
                await self._list_in_history(run.id, start, result)

    async def _look_at_unfinished(self, run: _Run, start: Start, hinted: set[str]) -> None:
        if run.id in hinted or start.created >= self._since - YOUNG:
            return
        if not await self._is_lost(run.id, start):
            return  # it went on meanwhile
        self._lost.runs.append(run.id)
        if self._repair:
            token = self._store.system.token
            await markers.wake(self._store, run.id, start, nonce=token)

    async def _is_lost(self, run: str, start: Start) -> bool:
        """Whether it is still not over, and there is still no hint of any kind.

        A status does not tell: a run whose wait has begun is parked, also if its timer is gone.
        """
        status = await reading.read_status(self._store, run, start)
        if status.interrupted or status != "parked":
            return status.interrupted
        facts = await load(self._store, run)
        if facts is None or facts.start.instance != start.instance or facts.result is not None:
            return False
        return await timers.newest(self._store, run, start, facts.waits) is None

    async def _look_at_orphans(self, run: _Run, start: Start, ended: set[tuple[str, str]]) -> None:
        for instance, objects in run.objects.items():
            known = instance == start.instance or (run.id, instance) in ended
            if not start.tombstone and not known:
                await self._remove_orphans(run.id, objects)

    async def _remove_orphans(self, run: str, objects: list[Stored]) -> None:
        if not self._is_old(objects):
            return
        if run not in self._orphans.runs:
            self._orphans.runs.append(run)
        if self._repair:
            for stored in objects:
                await self._store.delete(stored.name, stored.generation)

    async def _look_at_attention(self) -> None:
        async for stored in self._store.list("attention/"):
            hint = await record(self._store, stored, _attention)
            if hint is None or hint.time >= self._since - YOUNG:
                continue
            result = await reading.read_result(self._store, hint.run, hint.instance)
            if result is not None:
                self._stale.runs.append(hint.run)
                if self._repair:
                    queue = unquote(stored.name.split("/")[1])
                    await flags.unflag(self._store, queue, hint.run)

    async def _look_at_waits(self) -> None:
        """What says that an instance waits which is over, or which no `start` names any more."""
        async for stored in self._store.list(names.TIMERS):
            instance = names.timer_instance(stored.name)
            await self._look_at_wait(names.timer_run(stored.name), instance, stored)
        for place in await places_in_line(self._store):
            await self._look_at_wait(place.pending.run, place.pending.instance, place.stored)

    async def _look_at_wait(self, run: str, instance: str, hint: Stored) -> None:
        known = self._open.get(run)  # None: it was started since, or is about to be
        if known is None or known in {instance, ANY} or not self._is_old([hint]):
            return
        if run not in self._idle.runs:
            self._idle.runs.append(run)
        if self._repair:
            await self._store.delete(hint.name, hint.generation)

    def _is_old(self, objects: list[Stored]) -> bool:
        return all(stored.updated < self._since - YOUNG for stored in objects)

    # -- reading and repairing ---------------------------------------------------------------------

    async def _start(self, run: _Run) -> Start | None:
        """None: nothing but a folder, which its run's start may be about to name."""
        if run.start is None:
            await self._remove_orphans(run.id, [s for found in run.objects.values() for s in found])
            return None
        full = run.start if run.start.body is not None else await self._store.read(run.start.name)
        return None if full is None else reading.decode_start(run.id, full)

    async def _result(self, run: _Run, instance: str) -> Result | None:
        stored = run.results.get(instance)
        if stored is not None and stored.body is None:
            stored = await self._store.read(stored.name)
        return None if stored is None else decode_result(stored)

    async def _list_in_history(self, run: str, start: Start, result: Result) -> None:
        token = self._store.system.token()
        entry = History.of(run, start, result, why=ending(result), nonce=token)
        name = names.history(moments.stamp(result.time), run)
        await self._store.create(name, records.encode(entry), nonce=entry.nonce)


def _add(run: _Run, stored: Stored) -> None:
    if stored.name == names.start(run.id):
        run.start = stored
        return
    fact = names.parse_fact(run.id, stored.name)
    instance = fact.instance if fact is not None else ""
    run.objects.setdefault(instance, []).append(stored)
    if fact is not None and fact.kind == "result":
        run.results[instance] = stored
