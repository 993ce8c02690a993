"""The rules for what concerns no single run: fences, repetitions in all, what is left at rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from tests.crash.case import Case
from tests.crash.store import Object, marked_run
from tests.crash.violations import Violation

MOST_BODIES_IN_FLIGHT = 6 * 9  # runs that a worker holds, by calls that one run makes at once


def repetitions_are_few(case: Case) -> Iterable[Violation]:
    """T4: per death, or loss of a lease, at most the bodies that one worker has in flight."""
    times = sum(len(run.repeated) for run in case.runs.values())
    processes = case.story.processes.values()
    deaths = sum(bool(p.killed) + len(case.lost_leases(p.name)) for p in processes)
    if times > deaths * MOST_BODIES_IN_FLIGHT:
        yield Violation("repeated", "", f"{times} bodies ran again after {deaths} deaths")


def fenced_owners_start_nothing(case: Case) -> Iterable[Violation]:
    """T3: after it was fenced, a worker starts no body.

    One body of each run is let pass: the process may have been stopped between its last look
    at the lease and the first line of the body, which may be in another thread.
    """
    for run in case.runs.values():
        late = [b for b in run.bodies if b.began > (case.fenced_at(run, b.epoch) or b.began)]
        for (process, epoch), times in Counter((b.process, b.epoch) for b in late).items():
            if times > 1:
                text = f"{process} was fenced and started {times} bodies of epoch {epoch} after it"
                yield Violation("broken", run.name, text)


def fences_are_justified(case: Case) -> Iterable[Violation]:
    """T2: a lease is fenced when it has run out, or when its process is provably dead."""
    for fence in case.evidence.fences:
        lease = case.story.leases.get(fence.worker)
        if lease is None or not lease.dead:
            yield Violation("broken", "", f"{fence}: the store shows no dead lease of it")
            continue
        process = case.story.processes[lease.process]
        if fence.reason == "lock" and not 0 < process.killed <= lease.dead:
            yield Violation("broken", "", f"{fence} by its lock, but it lived: {process}")
        if fence.reason == "lock" and process.private:
            yield Violation("broken", "", f"{fence} by a lock that nobody else can see: {process}")
        if fence.reason == "ttl" and lease.dead <= lease.alive + lease.ttl + lease.margin:
            yield Violation("broken", "", f"{fence} before its time: {lease}")
    for worker, times in Counter(fence.worker for fence in case.evidence.fences).items():
        if times > 1:
            yield Violation("broken", "", f"worker {worker} was fenced {times} times")


# -- at rest --------------------------------------------------------------------------------------


def nothing_is_left(case: Case) -> Iterable[Violation]:
    """L9: at rest no markers, no attention, no leases but dead ones, no unknown objects."""
    for stored in case.evidence.objects:
        folder = stored.name.split("/")[0]
        match folder:
            case "live":
                yield Violation("lost", marked_run(stored.name), f"{stored.name} is still there")
            case "attention":
                yield Violation("lost", stored.body["run"], f"it needs attention: {stored.body}")
            case "workers" if stored.body.get("state") != "dead":
                yield Violation("broken", "", f"a lease is left: {stored.name} {stored.body}")
            case "presence":
                yield from _left_presence(case, stored)
            case "runs" | "history" | "workers" | "bells":
                pass
            case _:
                yield Violation("broken", "", f"{stored.name} should not exist")
    for run in case.unknown:
        yield Violation("broken", run, "nobody started it")


def _left_presence(case: Case, stored: Object) -> Iterable[Violation]:
    """A process that was killed could not remove it, nor one that lost its id."""
    lease = case.story.leases.get(stored.body["worker"])
    process = case.story.processes[stored.body["label"]]
    if not process.killed and not (lease and lease.dead):
        yield Violation("broken", "", f"{process.name} ended and left {stored.name}")


def nothing_was_missing(case: Case) -> Iterable[Violation]:
    """L1, L2: what the harness waited for came in time; every process told a whole story."""
    for trouble in case.story.troubles:
        yield Violation("broken", "", trouble)
    deaths = sum(1 for p in case.story.processes.values() if p.killed)
    if case.evidence.torn > deaths:
        yield Violation("broken", "", f"{case.evidence.torn} lines of the log are torn")


RULES: list[Callable[[Case], Iterable[Violation]]] = [
    repetitions_are_few,
    fenced_owners_start_nothing,
    fences_are_justified,
    nothing_is_left,
    nothing_was_missing,
]
