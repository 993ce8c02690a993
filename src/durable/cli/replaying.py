"""`replay`: today's code against a run's record. No body is executed, nothing is written."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field

import anyio
import msgspec

from durable.cli import exits, output
from durable.cli.exits import PATIENCE
from durable.cli.targets import served
from durable.client import connect, reading
from durable.client.connection import Observer
from durable.errors import UnknownWorkflow
from durable.protocol import values
from durable.runtime import undoing
from durable.runtime.closing import Attention, Closing, Finished, Stopped
from durable.runtime.definitions import WorkflowDefinition
from durable.runtime.execution import Execution
from durable.runtime.facts import Facts
from durable.runtime.surroundings import Progress, Surroundings
from durable.store import Store


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


def replay(arguments: argparse.Namespace) -> int:
    """Print the calls that code and record have in common, and the first difference."""
    done = anyio.run(_replay, arguments, served(arguments.target, arguments.store))
    if arguments.json:
        output.document(_document(arguments.run, done))
    else:
        _print(done)
    return exits.ATTENTION if done.difference else exits.DONE


async def _replay(arguments: argparse.Namespace, known: dict[str, WorkflowDefinition]) -> Replay:
    async with connect(arguments.store, patience=PATIENCE) as client:
        facts = await reading.load(client.store, arguments.run)
        definition = known.get(facts.start.workflow)
        if definition is None:
            raise UnknownWorkflow(
                f"run {arguments.run!r} is of workflow {facts.start.workflow!r}, which no target "
                "defines",
                hint=f"name the file or module: durable replay {arguments.run} --target ...",
                run=arguments.run,
            )
        return await compare(client.store, arguments.run, facts, definition)


async def compare(store: Store, run: str, facts: Facts, definition: WorkflowDefinition) -> Replay:
    """Run the workflow function over the record."""
    done = Replay()
    try:
        args, kwargs = values.decode_call(
            facts.start.input, definition.signature, definition.hints, name=definition.name
        )
    except values.Undecodable as e:
        done.difference = f"the recorded input does not fit {definition.name!r}: {e}"
        return done

    def observe(_run: str, progress: Progress) -> None:
        if progress.kind == "replay":
            done.calls.append((progress.path, "error" if progress.failed else "value"))

    execution = Execution(
        around=_nothing_but_reading(store, observe), definition=definition, run_id=run,
        instance=facts.start.instance, epoch=0, journal=facts.journal(), args=args, kwargs=kwargs,
        cancel=facts.cancel, undos=undoing.by_path(facts.undos),
    )  # fmt: skip
    await execution.run_to_end()
    done.unasked = execution.turnstile.remaining()
    assert execution.closing is not None
    _judge(done, facts, execution.closing)
    return done


def _nothing_but_reading(store: Store, observe: Observer) -> Surroundings:
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
    if facts.result.status == "cancelled" or recorded == ends:
        done.end = "everything recorded fits, to the end"
    else:
        done.difference = "the code ends otherwise than the run did"
        done.recorded, done.asked = recorded, ends


def _said(value: msgspec.Raw | msgspec.UnsetType, failure: object) -> str:
    if failure is not None:
        return f"{getattr(failure, 'type', '')}: {getattr(failure, 'message', '')}"
    return "null" if isinstance(value, msgspec.UnsetType) else bytes(value).decode()


def _document(run: str, done: Replay) -> dict[str, object]:
    difference = None
    if done.difference:
        difference = {
            "message": done.difference, "recorded": done.recorded or None,
            "asked": done.asked or None,
        }  # fmt: skip
    return {
        "run": run, "fits": difference is None,
        "calls": [{"path": path, "outcome": outcome} for path, outcome in done.calls],
        "difference": difference, "unasked": done.unasked, "end": done.end or None,
    }  # fmt: skip


def _print(done: Replay) -> None:
    for path, outcome in done.calls:
        print(f"{path}  {outcome}")
    if not done.difference:
        print(done.end)
        return
    print(f"difference: {done.difference}")
    if done.recorded or done.asked:
        output.table(("recorded", "asked now"), [(done.recorded, done.asked)])
    for path in done.unasked:
        print(f"recorded, but not asked for: {path}")
