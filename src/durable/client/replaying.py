"""Today's code against a run's record: no body is executed and nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
import msgspec

from durable.client import reading
from durable.client.whereabouts import Whereabouts
from durable.decorators import WorkflowFunction, workflows
from durable.errors import CrashLoop, RunTimeout, SingletonTaken, UnknownWorkflow
from durable.protocol import values
from durable.protocol.records import Result
from durable.runtime import undoing
from durable.runtime.closing import Attention, Closing, Finished, Stopped
from durable.runtime.definitions import WorkflowDefinition, code_for
from durable.runtime.execution import Execution
from durable.runtime.facts import Facts
from durable.runtime.surroundings import Progress, Surroundings
from durable.store import Store

Watch = Callable[[Progress], bool]

_ENDINGS = (CrashLoop, RunTimeout, SingletonTaken)
_ENDED = {f"{kind.__module__}.{kind.__qualname__}" for kind in _ENDINGS}
LIMIT = 60.0  # seconds that a replay may last, unless its caller says otherwise


@dataclass
class Replay:
    """What came of it.

    Attributes:
        calls: recorded calls that the code made, in order, each with its outcome.
        difference: what the code does otherwise; empty if it fits.
        recorded: what is recorded where the two part.
        asked: what the code asks there.
        unasked: recorded calls that the code has not made.
        end: how far the replay came.
    """

    calls: list[tuple[str, str]] = field(default_factory=list)
    difference: str = ""
    recorded: str = ""
    asked: str = ""
    unasked: list[str] = field(default_factory=list)
    end: str = ""


def _on(_progress: Progress) -> bool:
    return True


async def subject(
    store: Store, run: str, workflow: WorkflowFunction[Any, Any] | None
) -> tuple[Facts, WorkflowDefinition]:
    """The record of a run, and the code to compare with it.

    Args:
        workflow: the code; default: what this process has under the run's workflow name.

    Raises:
        NotFound: there is no run of that id.
        UnknownWorkflow: this process has no such workflow.
    """
    facts = await reading.load(store, run)
    known = code_for(workflows(), facts.start)
    definition = known if workflow is None else workflow.definition
    if definition is None:
        pinned = f" and pinned to version {facts.start.pin!r}" if facts.start.pin else ""
        raise UnknownWorkflow(
            f"run {run!r} is of workflow {facts.start.workflow!r}{pinned}, which is not here",
            hint="import the module that defines it, or give the workflow",
            run=run,
        )
    return facts, definition


async def compare(
    store: Store,
    run: str,
    facts: Facts,
    definition: WorkflowDefinition,
    *,
    watch: Watch = _on,
    limit: float | None = LIMIT,
) -> Replay:
    """Run the workflow function over the record, in this event loop.

    Args:
        store: gives the time; nothing is read from it.
        watch: asked at each call, in the workflow's own task: False stops the replay there.
        limit: seconds after which it ends without an answer, because the code waits for something
            that is not durable; None: it may last for ever.
    """
    comparison = Comparison(store, run, facts, definition, watch=watch, limit=limit)
    await comparison.run()
    return comparison.done


class Comparison:
    """One replay. Arguments as of `compare`.

    Attributes:
        done: what has come of it so far.
    """

    def __init__(
        self,
        store: Store,
        run: str,
        facts: Facts,
        definition: WorkflowDefinition,
        *,
        watch: Watch,
        limit: float | None,
    ) -> None:
        self.done = Replay()
        self._store = store
        self._run = run
        self._facts = facts
        self._definition = definition
        self._watch = watch
        self._limit = limit
        self._whereabouts = Whereabouts()
        self._stopped = ""  # at which call

    async def run(self, answered: Callable[[], None] = lambda: None) -> None:
        """Returns when nothing of it is left: not for code that does not unwind.

        Args:
            answered: called as soon as `done` is the answer.
        """
        facts, definition = self._facts, self._whereabouts.seen(self._definition)
        try:
            args, kwargs = values.decode_call(
                facts.start.input, definition.signature, definition.hints, name=definition.name
            )
        except values.Undecodable as e:
            self.done.difference = f"the recorded input does not fit {definition.name!r}: {e}"
            answered()
            return
        execution = Execution(
            around=_nothing_but_reading(self._store, lambda run, p: self._observe(execution, p)),
            definition=definition, run_id=self._run, instance=facts.start.instance, epoch=0,
            journal=facts.journal(), args=args, kwargs=kwargs, origin=facts.start.first(),
            forks=facts.start.forks, version=facts.start.workflow_version, cancel=facts.cancel,
            undos=undoing.by_path(facts.undos),
        )  # fmt: skip
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(execution.run_to_end, tasks.start_soon)
            try:
                with anyio.move_on_after(self._limit):
                    await execution.ended.wait()
                closing = execution.closing
            finally:
                execution.close(Stopped("cancelled"))
            self.done.unasked = [] if self._stopped else execution.turnstile.remaining()
            if closing is None:
                self.give_up()
            elif self._stopped:
                said = f"up to {self._stopped!r}, where the replay was stopped"
                self.done.end = f"everything recorded fits {said}"
            else:
                _judge(self.done, facts, closing)
            answered()
            tasks.cancel_scope.cancel()

    def give_up(self) -> None:
        """The code does not come to its next durable call, and nobody waits for it any longer."""
        line = self._whereabouts.line()
        self.done.difference = _unknown(self._run, self.done, self._limit, line)

    def _observe(self, execution: Execution, progress: Progress) -> None:
        if progress.kind == "replay":
            self.done.calls.append((progress.path, "error" if progress.failed else "value"))
        if not self._watch(progress):
            self._stopped = progress.path
            execution.close(Stopped("cancelled"))


def _unknown(run: str, done: Replay, limit: float | None, line: str) -> str:
    """What is said of code that does not come to its next durable call."""
    after = f"after call {done.calls[-1][0]!r}" if done.calls else "before its first call"
    where = f", at {line}" if line else ""
    return (
        f"unknown: the replay of run {run!r} was not over after {limit:g} s; {after} the code "
        f"waits for something that is not durable, or computes{where}"
    )


def _nothing_but_reading(store: Store, observe: Callable[[str, Progress], None]) -> Surroundings:
    return Surroundings(
        store=store, system=store.system, trusted=lambda: True,
        steps=anyio.CapacityLimiter(1), workflows=anyio.CapacityLimiter(1), observe=observe,
        replay_only=True,
    )  # fmt: skip


def _judge(done: Replay, facts: Facts, closing: Closing) -> None:
    if facts.result is not None and _cut_short(facts.result):
        # What was undone then, the code comes to once it has come to its own end.
        done.unasked = [path for path in done.unasked if not path.startswith(undoing.FOLDER)]
    match closing:
        case Attention():
            done.difference = closing.message
            done.recorded, done.asked = closing.recorded, closing.asked
        case Stopped("replayed", path) if done.unasked:
            done.difference = (
                f"the code calls {path!r}, which is not recorded, before recorded calls"
            )
            done.recorded, done.asked = done.unasked[0], path
        case Stopped("replayed", path) if facts.result is not None and _cut_short(facts.result):
            done.end = f"everything recorded fits, up to where the run was ended, before {path!r}"
        case Stopped("replayed", path) if facts.result is not None:
            done.difference = f"the run is over, but the code calls {path!r}, which is not recorded"
            done.recorded, done.asked = facts.result.status, path
        case Stopped("replayed", path):
            done.end = f"everything recorded fits; the next call is {path!r}"
        case Finished():
            _judge_end(done, facts, closing)
        case _:
            done.difference = f"the replay ended early: {closing}"


def _judge_end(done: Replay, facts: Facts, finished: Finished) -> None:
    if done.unasked:
        done.difference = "the code ends without having made every recorded call"
        done.recorded, done.asked = done.unasked[0], "the end"
        return
    ends = _said(finished.value, finished.failure)
    if facts.result is None:
        done.end = f"everything recorded fits; the run would end with {ends}"
        return
    recorded = _said(facts.result.value, facts.result.failure)
    if _cut_short(facts.result) or recorded == ends:
        done.end = "everything recorded fits, to the end"
    else:
        done.difference = "the code ends otherwise than the run did"
        done.recorded, done.asked = recorded, ends


def _cut_short(result: Result) -> bool:
    """Whether something else than the workflow's own code ended the run."""
    decided = result.skipped is not None or result.joined is not None
    failure = result.failure
    # Raised by no code, it has no traceback.
    ended = failure is not None and failure.type in _ENDED and not failure.traceback
    return result.status == "cancelled" or decided or ended


def _said(value: msgspec.Raw | msgspec.UnsetType, failure: object) -> str:
    if failure is not None:
        return f"{getattr(failure, 'type', '')}: {getattr(failure, 'message', '')}"
    return "null" if isinstance(value, msgspec.UnsetType) else bytes(value).decode()
