"""What the runs of a crash test must have in common, and what to say when they do not."""

from __future__ import annotations

import re
from collections.abc import Iterable

from durable.runtime.definitions import WorkflowDefinition
from durable.testing.scenario import Crash, Place, Seen
from durable.testing.suspects import calls_of, unrepeatable

PLACES_SHOWN = 10


class CrashTestFailed(AssertionError):
    """A crash changed what a run comes to, or the workflow does not do the same each time."""


class Judge:
    """Compares each crashed run with the two that were not.

    Two, because steps may return something else each time they run. What differs between the two
    is taken as it is recorded; that the code makes the same of it is seen by a replay.

    Raises:
        CrashTestFailed: the two differ for another reason than their steps.
    """

    def __init__(self, definition: WorkflowDefinition, run: str, first: Seen, again: Seen) -> None:
        self.expected = first
        self.body_runs: dict[str, int] = {}
        self._definition = definition
        self._run = run
        self._varying = {
            place for place, text in first.steps.items() if again.steps.get(place, text) != text
        }
        self._check_ended(None, first)
        self._check_ended(None, again)
        if first.steps.keys() != again.steps.keys():
            raise self._not_repeatable(
                "two runs with the same input made other calls:\n"
                f"  first  {self._list(first.steps)}\n  then   {self._list(again.steps)}"
            )
        if first.outcome != again.outcome and not self._varying:
            raise self._not_repeatable(
                "two runs with the same input came to other ends, though every step returned the "
                f"same:\n  first  {first.outcome}\n  then   {again.outcome}"
            )

    @property
    def paths(self) -> list[str]:
        """Paths of the calls that are recorded."""
        return [self._show(place) for place in self.expected.steps]

    @property
    def varying_paths(self) -> list[str]:
        """Paths of the calls that return something else each time."""
        return sorted(self._show(place) for place in self._varying)

    def judge(self, crash: Crash, seen: Seen) -> None:
        """Raise unless the crashed run came to what it should."""
        for place, times in seen.body_runs.items():
            path = self._show(place)
            self.body_runs[path] = max(times, self.body_runs.get(path, 0))
        if seen.changed:
            raise self._failed(crash, seen, f"recorded objects changed: {', '.join(seen.changed)}")
        if seen.rerun:
            what = self._list(seen.rerun)
            raise self._failed(crash, seen, f"bodies ran again although recorded: {what}")
        self._check_ended(crash, seen)
        if seen.steps.keys() != self.expected.steps.keys():
            raise self._failed(
                crash, seen,
                f"expected the calls {self._list(self.expected.steps)}\n"
                f"  recorded are       {self._list(seen.steps)}",
            )  # fmt: skip
        if seen.outcome != self.expected.outcome and not self._varying:
            raise self._failed(
                crash, seen,
                f"without a crash it {self.expected.outcome}\n  with it, it        {seen.outcome}"
                f"{self._different_steps(seen)}",
            )  # fmt: skip

    # -- one check --------------------------------------------------------------------------------

    def _check_ended(self, crash: Crash | None, seen: Seen) -> None:
        if seen.trouble:
            raise self._failed(crash, seen, f"it did not end: {seen.trouble}{self._asked(seen)}")
        if seen.replay is not None and seen.replay.difference:
            raise self._not_repeatable(
                f"run once more over its own record, it does something else:\n"
                f"  {seen.replay.difference}\n"
                f"  recorded   {seen.replay.recorded}\n  asked now  {seen.replay.asked}"
                f"{self._asked(seen)}",
            )

    # -- what to say ------------------------------------------------------------------------------

    def _failed(self, crash: Crash | None, seen: Seen, what: str) -> CrashTestFailed:
        where = "without any crash"
        if crash is not None and seen.crashed_at is not None:
            where = crash.describe(*seen.crashed_at)
        name = self._definition.name
        verdict = "does not survive every crash" if crash else "does not end"
        suspects = self._suspects() if "needs attention" in what or "recorded call" in what else ""
        return CrashTestFailed(f"{name} {verdict}.\n  crash: {where}\n  {what}{suspects}")

    def _not_repeatable(self, what: str) -> CrashTestFailed:
        return CrashTestFailed(
            f"{self._definition.name} is not repeatable, so it cannot be resumed: {what}"
            f"{self._suspects()}"
        )

    def _suspects(self) -> str:
        lines = unrepeatable(self._definition.fn)
        if lines:
            return "\n  these lines do something else each time; move them into steps:" + _listed(
                lines
            )
        return (
            "\n  between its steps a workflow must not read clocks, chance, files or what other "
            "code changes; look into the functions that it calls"
        )

    def _asked(self, seen: Seen) -> str:
        """Where the code makes the calls that the trouble is about."""
        said = seen.trouble
        if seen.replay is not None:
            said += f"{seen.replay.difference} {seen.replay.recorded!r} {seen.replay.asked!r}"
        names = {_name(quoted) for quoted in re.findall("'([^']+)'", said)}
        lines = [line for name in sorted(names) for line in calls_of(self._definition.fn, name)]
        return f"\n  the calls it speaks of are made here:{_listed(lines)}" if lines else ""

    def _different_steps(self, seen: Seen) -> str:
        lines = [
            f"{self._show(place)}: {text} without a crash, {seen.steps[place]} with it; its body "
            f"ran {seen.body_runs.get(place, 0)} times"
            for place, text in self.expected.steps.items()
            if seen.steps.get(place, text) != text
        ]
        if not lines:
            return self._suspects()
        if any("OutcomeUnknown" in seen.steps.get(place, "") for place in seen.steps):
            return (
                "\n  a step that is at most once began before the crash, and nobody knows whether "
                "it did its work:"
                + _listed(lines)
                + "\n  catch OutcomeUnknown in the workflow and decide there"
            )
        return (
            "\n  these steps came to something else when they ran again:" + _listed(lines) +
            "\n  a body may run again after a crash: make it idempotent, for example by "
            "current().idempotency_key"
        )  # fmt: skip

    def _list(self, places: Iterable[Place]) -> str:
        return ", ".join(self._show(place) for place in places) or "none"

    def _show(self, place: Place) -> str:
        run, path = place
        return path if run == self._run else f"{path} of run {run!r}"


def _name(path: str) -> str:
    """The name of the call at that path; of a name itself, the name."""
    last = path.rsplit("/", 1)[-1]
    name, _, ordinal = last.rpartition(".")
    return name if ordinal.isdigit() else last.split("=", 1)[0]


def _listed(lines: list[str]) -> str:
    shown = [f"\n    {line}" for line in lines[:PLACES_SHOWN]]
    return "".join(shown)
