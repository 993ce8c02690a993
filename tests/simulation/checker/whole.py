"""The rules for what concerns no single instance: clients, liveness, what is left, cost."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any
from urllib.parse import quote, unquote

from tests.simulation.checker.case import LATE_SECONDS, Case, Fact, record, stays

OUTAGE_SECONDS = 45.0  # for which the longest fault lasts
PROMOTED_SECONDS = 90.0  # after it was due, in which a hint wakes its run for sure
HOT_SECONDS = 10.0
HOT_MUTATIONS = 12  # of one name in so many seconds; one a second, and a little more at once


def nothing_broke(case: Case) -> Iterator[str]:
    """The simulation came to its end; no worker was ended by an error of its own."""
    for fact in case.by_kind["stuck"]:
        yield str(fact.why)
    for fact in case.by_kind["broken"]:
        yield f"{fact.who} ended: {fact.error}"


def executions_are_known(case: Case) -> Iterator[str]:
    """P4: only what `start` named is executed."""
    for fact in case.by_kind["enter"]:
        if fact.key not in case.known_keys:
            yield f"{fact.who} executed an instance of run {fact.run!r} that `start` never named"


def accepted_is_kept(case: Case) -> Iterator[str]:
    """P4, S7, L1: a run whose start was acknowledged has an outcome, or waits for a human."""
    if case.last is None:
        return
    for fact in case.by_kind["reply"]:
        if fact.what != "start" or fact.is_.get("value") is None:
            continue
        folder = f"runs/{quote(fact.run, safe='.')}/"
        if f"{folder}start" not in case.last:
            yield f"run {fact.run!r} was accepted, and is gone"
            continue
        flagged = any(name.startswith("attention/") and unquote(name.rsplit("/", 1)[-1]) == fact.run
                      for name in case.last)  # fmt: skip
        ended = f"{folder}{fact.value}/result" in case.last
        if not ended and not flagged and case.expected.get(fact.run) != "replaced":
            yield f"run {fact.run!r} was accepted, and has no outcome"
        wanted = case.expected.get(fact.run)
        if wanted == "attention" and ended:
            yield f"run {fact.run!r} ended, and should have needed attention"
        if flagged and wanted not in {"attention", "either"} and not case.had_two_owners(fact.run):
            yield f"run {fact.run!r} needs attention for no reason"


def what_is_stuck_is_lost(case: Case) -> Iterator[str]:
    """L1, L3, L4: when something is waited for in vain, the runs that nobody will ever end."""
    if case.left is not None or case.last is None:
        return
    for name, body in case.last.items():
        if not (name.startswith("runs/") and name.endswith("/start")):
            continue
        run, said = unquote(name.split("/")[1]), json.loads(body)
        if said.get("tombstone") or f"{name[:-5]}{said['instance']}/result" in case.last:
            continue
        markers = (f"-{run}", f"/{run}")
        marked = [
            other for other in case.last
            if other.startswith(("live/", "attention/")) and unquote(other).endswith(markers)
        ]  # fmt: skip
        yield f"run {run!r} is not over, and has {marked or 'neither marker nor flag'}"


def equal_starts_are_one_run(case: Case) -> Iterator[str]:
    """P4, S8: whoever starts an id with the same input is told the same instance."""
    told: dict[str, set[object]] = defaultdict(set)
    for fact in case.by_kind["reply"]:
        if fact.what == "start" and fact.is_.get("value") is not None:
            told[fact.run].add(fact.value)
    for run, instances in told.items():
        if len(instances) > 1 and case.expected.get(run) != "replaced":
            yield f"starts of run {run!r} were told {len(instances)} instances"


def starts_never_change(case: Case) -> Iterator[str]:
    """S7: what a run was asked to do does not change, but by a restart or a purge.

    Of one that is held back it does, see `held`.
    """
    for name, facts in case.mutations.items():
        if name.startswith("runs/") and name.endswith("/start"):
            for fact in facts[1:]:
                if fact.verb == "replace" and record(fact).get("debounce"):
                    continue
                if case.expected.get(unquote(name.split("/")[1])) != "replaced":
                    yield f"{fact.who} did {fact.verb} {name}"


def clients_are_told_the_record(case: Case) -> Iterator[str]:
    """S2: a result that a client is told is the one that is recorded."""
    results = defaultdict(list)
    for instance in case.instances.values():
        for fact in instance.results:
            results[instance.run].append(fact)
    for reply in case.by_kind["reply"]:
        if reply.what != "result" or reply.is_.get("error") not in {None, "RunFailed"}:
            continue
        said = reply.is_.get("value", reply.is_.get("message"))
        known = [record(f) for f in results[reply.run] if f.order < reply.order]
        texts = [text for r in known if (text := _told_of(r))]
        joined = any("joined" in record(f) for f in results[reply.run] if f.order < reply.order)
        if not joined and not any(text in str(said) for text in texts):
            yield f"{reply.who} was told {said!r} of run {reply.run!r}, recorded is {texts}"


def _told_of(result: dict[str, Any]) -> str:
    """What a client is told of a recorded result; empty: the outcome of another run."""
    if "value" in result:
        return str(result["value"])
    if "failure" in result:
        return str(result["failure"]["message"])
    return str(result["skipped"]["run"]) if "skipped" in result else ""


def nothing_is_left(case: Case) -> Iterator[str]:
    """L9: at rest no marker, no live lease, no hint but of runs that wait for a human."""
    if case.left is None:
        return
    killed = {f.who for f in case.by_kind["happened"] if f.what in {"killed", "cancelled"}}
    stopped = {f.who for f in case.by_kind["happened"] if "stopped" in f.what or "susp" in f.what}
    killed |= _disturbed_at_the_end(case)
    for name, body in case.left.items():
        match name.split("/")[0]:
            case "live":
                # Who was held up until nobody else was there tells of a run for the next worker, as
                # does a hint that has come due just then.
                late = _after_all_were_told_to_end(case, name)
                if late is None or not (late.who in killed or _had_a_hint(case, late)):
                    yield f"{name} is left"
            case "attention":
                run = unquote(name.rsplit("/", 1)[-1])
                wanted = case.expected.get(run) in {"attention", "either"}
                if not wanted and not case.had_two_owners(run):
                    yield f"{name} is left: {body.decode()}"
            case "workers":
                last = case.mutations[name][-1]
                alive = record(last).get("state", "alive") == "alive"
                # Where the store was too slow for a renewal or a delete in time, it runs out.
                tried = _deletion_was_tried(case, name) or _renewal_was_tried(case, last)
                if alive and not tried and last.who not in killed | stopped:
                    yield f"the lease of {last.who} is left"
            case "presence":
                last = case.mutations[name][-1]
                told = [f.at for f in case.by_kind["happened"] if f.what == "told to end"
                        and f.who == last.who]  # fmt: skip
                # Told to end before the answer came, it does not know what to delete.
                in_time = not told or last.at + LATE_SECONDS < told[0]
                disturbed = last.who in killed | stopped or case.by_kind["fault"]
                # As for leases: the hint is tidied once it is old.
                if in_time and not disturbed and not _deletion_was_tried(case, name):
                    yield f"the presence of {last.who} is left"
            case "timers":
                # One that is not due yet wakes its run once more, and is deleted then. One whose
                # create landed late stays until `gc` finds it, and does nothing.
                stamp = name.split("/")[1]
                due = float("-inf") if stamp == "never" else _seconds(stamp)
                over = case.by_kind["rest"][-1].store_time - due > PROMOTED_SECONDS
                # So does one that is never due, where the store did not answer the delete.
                late = case.landed_late(case.mutations[name][-1])
                late = late or case.had_two_owners(unquote(name.split("/")[2]))
                if over and not late and not (stamp == "never" and _deletion_was_tried(case, name)):
                    yield f"{name} is left"
            case "runs" | "history" | "bells" | "schedules" | "leases" | "pauses" | "docs" | "once":
                pass
            case "locks" | "queues":
                pass  # `coordination` tells what of them may be left
            case _:
                yield f"{name} should not exist"


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()


def _after_all_were_told_to_end(case: Case, name: str) -> Fact | None:
    """The last change of an object, if the workers were on their way out by then."""
    told = max((f.at for f in case.by_kind["happened"] if f.what == "told to end"), default=None)
    changes = [f for f in case.mutations.get(name, []) if told is not None and f.at > told]
    return changes[-1] if changes else None


def _had_a_hint(case: Case, marker: Fact) -> bool:
    """Whether a hint with a time to wake the marker's run stood there when it was made."""
    run = record(marker).get("run")
    return any(
        stay.covers(marker.order)
        for name, facts in case.mutations.items()
        if name.startswith("timers/2") and unquote(name.split("/")[2]) == run
        for stay in stays(facts)
    )


def _disturbed_at_the_end(case: Case) -> set[str]:
    """Processes that could not say good-bye because of a fault: their leases run out."""
    settling = [f.at for f in case.by_kind["phase"] if f.what == "settling"]
    since = settling[-1] - OUTAGE_SECONDS if settling else 0.0
    late = [f for f in case.by_kind["fault"] if f.at >= since]
    everybody = {f.who for f in case.by_kind["call"]}
    storm = any(f.fault == "busy_storm" for f in late)
    return everybody if storm else {f.who for f in late}


def histories_are_complete(case: Case) -> Iterator[str]:
    """L9: each ended run is in the history, once.

    Where the outcome is the late write of a dead owner, and the run was left to a human before
    that, whoever looks at the hints next finishes it.
    """
    if case.left is None:
        return
    entries = [unquote(n.rsplit("Z-", 1)[-1]) for n in case.left if n.startswith("history/")]
    for instance in case.instances.values():
        name = f"runs/{quote(instance.run, safe='.')}/{instance.id}/result"
        if name in case.left and entries.count(instance.run) < 1:
            flagged = any(n.startswith("attention/") for n in case.left if _is_of(n, instance.run))
            if flagged and case.landed_late(case.mutations[name][0]):
                continue
            yield f"run {instance.run!r} is over and not in the history"
    for run in set(entries):
        ended = sum(bool(i.results) for i in case.instances.values() if i.run == run)
        if entries.count(run) > ended:
            yield f"run {run!r} is {entries.count(run)} times in the history"


def no_object_is_hot(case: Case) -> Iterator[str]:
    """C1: about one mutation a second of any one object, over ten seconds."""
    for name, facts in case.mutations.items():
        window: deque[float] = deque()
        for fact in facts:
            window.append(fact.at)
            while window[0] < fact.at - HOT_SECONDS:
                window.popleft()
            if len(window) > HOT_MUTATIONS:
                yield f"{name} was changed {len(window)} times in {HOT_SECONDS:g} s"
                break


WHOLE_RULES: list[Callable[[Case], Iterator[str]]] = [
    nothing_broke,
    executions_are_known,
    accepted_is_kept,
    what_is_stuck_is_lost,
    equal_starts_are_one_run,
    starts_never_change,
    clients_are_told_the_record,
    nothing_is_left,
    histories_are_complete,
    no_object_is_hot,
]


def _deletion_was_tried(case: Case, name: str) -> bool:
    return any(fact.verb == "delete" and fact.name == name for fact in case.by_kind["call"])


def _renewal_was_tried(case: Case, last: Fact) -> bool:
    """Whether somebody wrote once more, and it did not arrive."""
    return any(
        (fact.verb, fact.name) == ("replace", last.name) and fact.order > last.order
        for fact in case.by_kind["call"]
    )


def _is_of(hint: str, run: str) -> bool:
    return unquote(hint.rsplit("/", 1)[-1]) == run
