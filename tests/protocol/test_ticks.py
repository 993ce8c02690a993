"""What becomes of ticks: each is decided once, and started, missed or skipped."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from durable.errors import InvalidId, UsageError
from durable.protocol import records, ticks
from durable.protocol.records import ScheduleRecord
from durable.protocol.schedules import Schedule, every

HOUR = 3600.0


def register(schedule: Schedule | None = None, **more: Any) -> ScheduleRecord:
    return ScheduleRecord(
        name="s", workflow="w", input=msgspec.Raw(b"{}"),
        schedule=schedule or every("1h"), nonce="", **more,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("catch_up", "started"),
    [("skip", []), ("latest", [26]), (3, [24, 25, 26]), ("all", list(range(1, 27)))],
)
def test_catching_up_after_26_hours(catch_up: Any, started: list[int]) -> None:
    """An hourly schedule, nobody there for 26 hours: none, the last, or all; none unaccounted."""
    decided = ticks.decide(
        register(every("1h", catch_up=catch_up, overlap="allow")), 26.5 * HOUR, busy=False
    )

    assert decided is not None
    assert decided.started == [hour * HOUR for hour in started]
    assert (decided.fired, decided.missed) == (len(started), 26 - len(started))
    assert decided.through == 26 * HOUR


def test_a_tick_on_time_is_no_matter_of_catching_up() -> None:
    """With `skip` a tick that is found within two minutes still runs."""
    record = register(every("1h", catch_up="skip"))

    on_time = ticks.decide(record, HOUR + ticks.LATE, busy=False)
    late = ticks.decide(record, HOUR + ticks.LATE + 1, busy=False)

    assert on_time is not None
    assert on_time.started == [HOUR]
    assert late is not None
    assert (late.started, late.missed) == ([], 1)


def test_nothing_happens_before_its_time() -> None:
    """No tick is decided early, and a decided one is not decided again."""
    record = register()

    assert ticks.decide(record, HOUR - 0.001, busy=False) is None
    decided = ticks.decide(record, HOUR, busy=False)
    assert decided is not None
    assert ticks.decide(decided, HOUR + 1, busy=False) is None


@pytest.mark.parametrize(
    ("overlap", "started", "queued", "skipped", "cancelling"),
    [
        ("skip", [], [], 1, 0.0),
        ("queue", [], [2 * HOUR], 0, 0.0),
        ("cancel-old", [2 * HOUR], [], 0, HOUR),
        ("allow", [2 * HOUR], [], 0, 0.0),
    ],
)
def test_overlapping(
    overlap: Any, started: list[float], queued: list[float], skipped: int, cancelling: float
) -> None:
    """The second tick comes while the first's run is not over."""
    first = ticks.decide(register(every("1h", overlap=overlap)), HOUR, busy=False)
    assert first is not None
    second = ticks.decide(msgspec.structs.replace(first, started=[]), 2 * HOUR, busy=True)

    assert second is not None
    assert (second.started, second.queued) == (started, queued)
    assert (second.skipped, second.cancelling) == (skipped, cancelling)


def test_a_queued_tick_runs_when_the_one_before_is_over() -> None:
    """It keeps its tick, and the next waits behind it."""
    record = register(every("1h", overlap="queue"), through=HOUR, last=HOUR, queued=[2 * HOUR])

    assert ticks.decide(record, 1.5 * HOUR, busy=True) is None
    decided = ticks.decide(record, 3 * HOUR, busy=False)
    assert decided is not None
    assert (decided.started, decided.queued) == ([2 * HOUR], [3 * HOUR])


def test_a_new_schedule_begins_with_its_next_tick() -> None:
    """Created at 07:59:41 for 08:00 it runs at 08:00, however often workers declare it."""
    asked = register(every("1h"))
    made = ticks.declared(None, asked, 7.99 * HOUR)
    assert made is not None

    assert ticks.next_fire(made) == 8 * HOUR
    assert ticks.decide(made, 7.999 * HOUR, busy=False) is None
    assert ticks.declared(made, asked, 7.995 * HOUR) is None


def test_a_changed_schedule_forgets_its_past() -> None:
    """Other ticks begin now; what was counted, paused and started stays."""
    made = register(every("1h"), through=HOUR, fired=3, paused=True, started=[HOUR])
    changed = ticks.declared(made, register(every("10m")), 5 * HOUR)

    assert changed is not None
    assert (changed.through, changed.fired, changed.paused) == (5 * HOUR, 3, True)
    assert changed.started == [HOUR]


def test_a_changed_policy_forgets_nothing() -> None:
    """The same ticks under another policy are caught up with."""
    made = register(every("1h"), through=HOUR)
    changed = ticks.declared(made, register(every("1h", overlap="allow")), 5 * HOUR)

    assert changed is not None
    assert changed.through == HOUR


def test_ticks_of_a_pause_are_none() -> None:
    """Paused, nothing is decided; resumed, the next tick is the first after it."""
    paused = ticks.paused(register(through=HOUR))
    resumed = ticks.resumed(paused, 5.5 * HOUR)

    assert ticks.decide(paused, 5 * HOUR, busy=False) is None
    assert ticks.next_fire(paused) == math.inf
    assert ticks.decide(resumed, 5.9 * HOUR, busy=False) is None
    assert ticks.next_fire(resumed) == 6 * HOUR


def test_names_that_do_not_fit_into_run_ids() -> None:
    """A schedule's name is checked where it is made."""
    with pytest.raises(UsageError, match="too long"):
        ticks.check_name("x" * 161)
    with pytest.raises(InvalidId):
        ticks.check_name("")
    assert ticks.run_id("nightly", 1_764_381_600.0) == "nightly@2025-11-29T02:00:00Z"


def test_between_includes_both_ends() -> None:
    """For a backfill: the ticks of a time, or None if they are too many."""
    assert ticks.between(every("1h"), HOUR, 3 * HOUR, 3) == [HOUR, 2 * HOUR, 3 * HOUR]
    assert ticks.between(every("1h"), HOUR + 0.5, 2 * HOUR, 3) == [2 * HOUR]
    assert ticks.between(every("1h"), HOUR, 3 * HOUR, 2) is None


@dataclass
class Decider:
    """A worker: what it read of the register, and when."""

    seen: ScheduleRecord | None = None
    generation: int = -1


class Deciders(RuleBasedStateMachine):
    """Three workers, one register, clocks that agree roughly; any of them may die anywhere."""

    @initialize(
        catch_up=st.sampled_from(["skip", "latest", "all", 2]),
        overlap=st.sampled_from(["skip", "queue", "allow"]),
        jitter=st.sampled_from([0, 200]),
    )
    def begin(self, catch_up: Any, overlap: Any, jitter: float) -> None:
        if catch_up in {"all", 2} and overlap == "skip":
            overlap = "queue"
        schedule = every("10m", catch_up=catch_up, overlap=overlap, jitter=jitter)
        self.record = register(schedule)
        self.generation = 0
        self.now = 0.0
        self.workers = [Decider() for _ in range(3)]
        self.runs: dict[float, bool] = {}  # by tick: over
        self.begun_while_busy = 0

    @rule(seconds=st.sampled_from([1.0, 61.0, 600.0, 7200.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(worker=st.integers(0, 2))
    def reads(self, worker: int) -> None:
        """A worker reads the register, and starts what has no run before it decides."""
        for tick in self.record.started:
            self.runs.setdefault(tick, False)
        self.workers[worker].seen, self.workers[worker].generation = self.record, self.generation

    @rule(worker=st.integers(0, 2), dies=st.booleans())
    def decides(self, worker: int, dies: bool) -> None:
        me = self.workers[worker]
        if me.seen is None:
            return
        last = me.seen.last
        busy = bool(last) and not self.runs.get(last, True)
        decided = ticks.decide(me.seen, self.now, busy=busy)
        if decided is None or me.generation != self.generation:
            me.seen = None  # refused: a compare-and-swap on an older generation
            return
        self.record, self.generation = decided, self.generation + 1
        me.seen = None
        if not dies:
            self.start()

    def start(self) -> None:
        for tick in self.record.started:
            if tick not in self.runs:
                if self.record.schedule.overlap != "allow" and not all(self.runs.values()):
                    self.begun_while_busy += 1
                self.runs[tick] = False

    @rule()
    def a_run_ends(self) -> None:
        for tick, over in self.runs.items():
            if not over:
                self.runs[tick] = True
                return

    @invariant()
    def every_tick_is_accounted_for(self) -> None:
        if hasattr(self, "record"):
            r = self.record
            assert r.fired + r.missed + r.skipped + len(r.queued) == round(r.through / 600)

    @invariant()
    def never_two_at_once(self) -> None:
        if hasattr(self, "record"):
            assert self.begun_while_busy == 0
            pending = set(self.record.started) - set(self.runs)
            assert len(self.runs) + len(pending) == self.record.fired

    @invariant()
    def it_is_stored_as_it_is(self) -> None:
        if hasattr(self, "record"):
            stored = msgspec.json.decode(records.encode(self.record), type=ScheduleRecord)
            assert stored == self.record


TestDeciders = Deciders.TestCase
