"""The rules of schedules: each tick is decided on once, by the policies, and has one run.

Ticks are counted anew here, for schedules at intervals.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from tests.simulation.checker.case import EARLY, EPOCH, Case, Fact, Instance, record, stays

SOON = 5.0  # seconds within which what was read is acted upon, if nothing goes wrong
ANYWAY = 60.0  # ... whatever goes wrong
MISSED_AFTER = 120.0  # seconds after which a tick counts as missed
CATCH_UP = {"skip": 0, "latest": 1, "all": 1000}


class Decision(NamedTuple):
    """A change of a schedule's register."""

    name: str
    before: dict[str, Any]
    after: dict[str, Any]
    fact: Fact

    @property
    def ticks(self) -> list[float]:
        """The ticks that it was about, in order."""
        step = self.after["schedule"]["when"]["seconds"]
        first, last = (int(r.get("through", 0.0) // step) for r in (self.before, self.after))
        return [float(k * step) for k in range(first + 1, last + 1)]

    @property
    def wanted(self) -> int:
        """How many of them came to be started, or queued, or skipped as the policy says."""
        return sum(self._more(what) for what in ("fired", "skipped")) + self._queued

    @property
    def counted(self) -> int:
        return self.wanted + self._more("missed")

    @property
    def begun(self) -> list[float]:
        """What it started."""
        before, after = self.before.get("started", []), self.after.get("started", [])
        return after if after != before else []

    def more_skipped(self) -> int:
        return self._more("skipped")

    def _more(self, what: str) -> int:
        found: int = self.after.get(what, 0) - self.before.get(what, 0)
        return found

    @property
    def _queued(self) -> int:
        return len(self.after.get("queued", [])) - len(self.before.get("queued", []))


def _decisions(case: Case) -> Iterator[Decision]:
    """What workers decided; not what people did to a schedule."""
    people = {f.who for f in case.by_kind["asked"]}
    for name, facts in case.mutations.items():
        if name.startswith("schedules/"):
            for before, fact in pairwise(facts):
                deleted = "delete" in (before.verb, fact.verb)
                if not deleted and fact.who not in people:
                    yield Decision(name.split("/")[1], record(before), record(fact), fact)


def _runs(case: Case) -> dict[tuple[str, float], list[Instance]]:
    """By schedule and tick."""
    found: dict[tuple[str, float], list[Instance]] = defaultdict(list)
    for id_, fact in case.starts.items():
        start = record(fact)
        if start.get("tick"):
            found[start["tags"]["schedule"], start["tick"]].append(case.instances[id_])
    return found


def ticks_are_decided_once(case: Case) -> Iterator[str]:
    """S13: ticks only go on, and each is started, queued, skipped or missed: one of these."""
    for decided in _decisions(case):
        through = decided.after.get("through", 0.0)
        if through < decided.before.get("through", 0.0):
            yield f"{decided.name} went back in time"
        if decided.counted != len(decided.ticks):
            yield f"{decided.name} decided on {decided.ticks} and counted {decided.counted}"
        if through > EPOCH + decided.fact.at + EARLY and case.keeps_p11:
            yield f"{decided.name} decided on {through} at {EPOCH + decided.fact.at}, too early"


def ticks_of_a_pause_are_none(case: Case) -> Iterator[str]:
    """While a schedule is paused nothing is decided, and afterwards nothing of that time.

    It goes on from when somebody asked for that, though the answer may have taken a while.
    """
    asked = {f.who: f.at for f in case.by_kind["asked"] if f.what == "resume"}
    for decided in _decisions(case):
        if decided.before.get("paused") and decided.after.get("paused") and decided.begun:
            yield f"{decided.name} started {decided.begun} while it was paused"
        for stay in stays(case.mutations[decided.fact.name]):
            if record(stay.since).get("paused") and stay.until is not None:
                begin = EPOCH + stay.since.at
                end = EPOCH + asked.get(stay.until.who, stay.until.at)
                slept = [t for t in decided.ticks if begin + EARLY < t < end - EARLY]
                if slept and stay.until.order < decided.fact.order:
                    yield f"{decided.name} decided on {slept}, when it was paused"


def ticks_have_one_run(case: Case) -> Iterator[str]:
    """S13: a tick has at most one run, and that it starts was decided before."""
    decided: dict[tuple[str, float], int] = {}
    for name, facts in case.mutations.items():
        if name.startswith("schedules/"):
            for fact in facts:
                for tick in record(fact).get("started", []) if fact.verb != "delete" else []:
                    decided.setdefault((name.split("/")[1], tick), fact.order)
    by_hand = {f.who for f in case.by_kind["asked"] if f.what == "backfill"}
    for (name, tick), instances in _runs(case).items():
        if len(instances) > 1:
            yield f"tick {tick} of {name} has the runs {[i.run for i in instances]}"
        start = case.starts[instances[0].id]
        since = decided.get((name, tick))
        if start.who not in by_hand and (since is None or since > start.order):
            yield f"{start.who} started tick {tick} of {name}, and nobody had decided on it"


def decided_ticks_have_runs(case: Case) -> Iterator[str]:
    """S13: what was decided to start has a run at rest, whoever died in between."""
    if case.left is None:
        return
    runs = _runs(case)
    for name, facts in case.mutations.items():
        if not name.startswith("schedules/") or facts[-1].verb == "delete":
            continue
        for tick in {t for f in facts for t in record(f).get("started", [])}:
            if (name.split("/")[1], tick) not in runs:
                yield f"tick {tick} of {name} was decided to start, and has no run"


def overlaps_follow_the_policy(case: Case) -> Iterator[str]:
    """While the run of the tick before goes on, a tick is skipped, queued, cancels it, or runs."""
    runs, seen = _runs(case), ANYWAY if case.by_kind["fault"] else SOON
    for decided in _decisions(case):
        policy = decided.after["schedule"].get("overlap", "skip")
        last = decided.before.get("last", 0.0)
        if policy == "allow" or not last:
            continue
        found = runs.get((decided.name, last), [])
        ended = case.over_since(found[0].run, found[0].id) if found else None
        over = ended is not None and ended < decided.fact.order
        if decided.begun and not over and decided.after.get("cancelling") != last:
            yield f"{decided.name} started {decided.begun} while the run of {last} went on"
        if decided.more_skipped() and over and ended is not None:
            if case.facts[ended].at < decided.fact.at - seen:
                yield f"{decided.name} skipped a tick, though the run of {last} was over"
        if decided.begun and decided.after.get("cancelling") == last and found:
            late = ended is None or case.facts[ended].at > decided.fact.at + seen
            if found[0].cancel is None and late:
                yield f"{decided.name} was to cancel the run of {last}, and did not"


def catching_up_follows_the_policy(case: Case) -> Iterator[str]:
    """Of the ticks that nobody was there for so many run, the last ones."""
    for decided in _decisions(case):
        ticks = decided.ticks
        if not ticks:
            continue
        asked = decided.after["schedule"].get("catch_up", "latest")
        most = CATCH_UP.get(asked, asked)
        if decided.wanted > max(1, most):
            yield f"{decided.name} made up for {decided.wanted} ticks of {len(ticks)}"
        if decided.wanted < min(len(ticks), most):
            yield f"{decided.name} made up for {decided.wanted} ticks of {len(ticks)}, not {most}"
        late = EPOCH + decided.fact.at - ticks[-1]
        if not most and decided.wanted and late > MISSED_AFTER + ANYWAY:
            yield f"{decided.name} started a tick {late:.0f} s late, which was to be missed"
        queued = decided.after.get("queued", [])
        started = [t for t in (*decided.begun, *queued) if t in ticks]
        if started and started != ticks[-len(started) :]:
            yield f"{decided.name} started {started}, which are not the last of {ticks}"


SCHEDULE_RULES: list[Callable[[Case], Iterator[str]]] = [
    ticks_are_decided_once,
    ticks_of_a_pause_are_none,
    ticks_have_one_run,
    decided_ticks_have_runs,
    overlaps_follow_the_policy,
    catching_up_follows_the_policy,
]
