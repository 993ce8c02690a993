"""Today's code against a run's record: no body is executed and nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import anyio
import msgspec

from durable.client.standing import Standing
from durable.errors import CrashLoop, RunTimeout, SingletonTaken
from durable.protocol import values
from durable.protocol.records import Result
from durable.runtime import undoing
from durable.runtime.closing import Attention, Closing, Finished, Stopped
from durable.runtime.definitions import WorkflowDefinition
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


async def compare(
    store: Store,
    run: str,
    facts: Facts,
    definition: WorkflowDefinition,
    *,
    watch: Watch = _on,
    limit: float | None = LIMIT,
) -> Replay:
    """Run the workflow function over the record.

    Args:
        store: gives the time; nothing is read from it.
        watch: asked at each call, in the workflow's own task: False stops the replay there.
        limit: seconds after which it ends without an answer, because the code waits for something
            that is not durable; None: it may last for ever.
    """
    done = Replay()
    stopped = ""
    try:
        args, kwargs = values.decode_call(
            facts.start.input, definition.signature, definition.hints, name=definition.name
        )
    except values.Undecodable as e:
        done.difference = f"the recorded input does not fit {definition.name!r}: {e}"
        return done

    def observe(_run: str, progress: Progress) -> None:
        nonlocal stopped
        if progress.kind == "replay":
            done.calls.append((progress.path, "error" if progress.failed else "value"))
        if not watch(progress):
            stopped = progress.path
            execution.close(Stopped("cancelled"))

    standing = Standing()
    execution = Execution(
        around=_nothing_but_reading(store, observe), definition=standing.seen(definition),
        run_id=run, instance=facts.start.instance, epoch=0, journal=facts.journal(), args=args,
        kwargs=kwargs, origin=facts.start.first(), forks=facts.start.forks,
        version=facts.start.workflow_version, cancel=facts.cancel,
        undos=undoing.by_path(facts.undos),
    )  # fmt: skip

    def run_out() -> None:
        done.unasked = execution.turnstile.remaining()
        done.difference = _unknown(run, done, limit, standing.line())
        execution.close(Stopped("cancelled"))

    await _run_within(limit, execution, run_out)
    assert execution.closing is not None
    if done.difference:
        return done
    if stopped:
        done.end = f"everything recorded fits up to {stopped!r}, where the replay was stopped"
        return done
    done.unasked = execution.turnstile.remaining()
    _judge(done, facts, execution.closing)
    return done


async def _run_within(
    limit: float | None, execution: Execution, run_out: Callable[[], None]
) -> None:
    async def watch(seconds: float) -> None:
        await anyio.sleep(seconds)
        if execution.closing is None:
            run_out()

    async with anyio.create_task_group() as tasks:
        if limit is not None:
            tasks.start_soon(watch, limit)
        await execution.run_to_end()
        tasks.cancel_scope.cancel()


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
