"""`list`, `show`, `workers` and `sweep`: what there is."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import anyio
import msgspec

from durable.cli import causes, exits, output, stores
from durable.client import RunSummary, Status, StepSummary, reading
from durable.client.listing import queue_of
from durable.client.reading import Workers
from durable.errors import NeedsAttention
from durable.protocol import failures
from durable.protocol.records import Attention, Cancel, Epoch, Result, Start
from durable.runtime import flags, locks
from durable.runtime.sweeper import Sweeper
from durable.runtime.sweeper import sweep as sweep_queue
from durable.store import Store

# -- list -----------------------------------------------------------------------------------------


def list(arguments: argparse.Namespace) -> int:  # the command's name
    """Runs, those not over first, then the newest."""
    runs = anyio.run(_list, arguments)
    if arguments.json:
        output.document({"runs": [_run_document(run) for run in runs]})
    elif runs:
        output.table(
            ("run", "workflow", "status", "started", "ended", "why"), [_run_row(r) for r in runs]
        )
    else:
        print("no runs")
    return exits.DONE


async def _list(arguments: argparse.Namespace) -> Iterable[RunSummary]:
    async with stores.existing(arguments) as client:
        listed = client.list(
            workflow=arguments.workflow, status=arguments.status, limit=arguments.limit
        )
        return [run async for run in listed]


def _run_document(run: RunSummary) -> dict[str, object]:
    return {
        "run": run.id, "workflow": run.workflow, "status": str(run.status),
        "reason": run.status.reason or None, "instance": run.instance, "started": run.started,
        "ended": run.ended, "tags": run.tags,
    }  # fmt: skip


def _run_row(run: RunSummary) -> tuple[str, ...]:
    ended = "" if run.ended is None else output.moment(run.ended)
    why = output.cut(run.status.reason)
    return run.id, run.workflow, run.status, output.moment(run.started), ended, why


# -- show -----------------------------------------------------------------------------------------


@dataclass
class _Shown:
    """What is known of one run; of a damaged one, as much as can be read."""

    run: str
    start: Start
    status: Status
    attention: Attention | None
    result: Result | None = None
    cancel: Cancel | None = None
    steps: tuple[StepSummary, ...] = ()
    epochs: tuple[Epoch, ...] = ()
    damage: NeedsAttention | None = None
    published: Mapping[str, object] = field(default_factory=dict)


def show(arguments: argparse.Namespace) -> int:
    """One run: its status and why, its recorded calls, its owners."""
    shown = anyio.run(_show, arguments)
    if arguments.json:
        output.document(_document(shown))
    else:
        _print(shown)
    return exits.DONE


async def _show(arguments: argparse.Namespace) -> _Shown:
    async with stores.existing(arguments) as client:
        store, run = client.store, arguments.run
        start = await reading.read_start(store, run)
        attention = await flags.read(store, start.queue, run)
        shown = _Shown(run, start, Status("waiting"), attention)
        try:
            shown.status = await reading.read_status(store, run, start)
            facts = await reading.load(store, run)
        except NeedsAttention as e:
            shown.status, shown.damage = Status("needs-attention", e.message), e
            return shown
        shown.result = facts.result
        newest = reading.newest(facts.published).items()
        shown.published = {name: reading.plain_value(record.value) for name, record in newest}
        shown.cancel = facts.cancel
        shown.steps = tuple(reading.summarize(facts))
        shown.epochs = tuple(sorted(facts.epochs, key=lambda e: e.epoch))
        if facts.result is not None:
            shown.attention = None  # what was wrong is over
        return shown


def _document(shown: _Shown) -> dict[str, object]:
    result = shown.result
    value = result.value if result is not None else msgspec.UNSET
    failure = result.failure if result is not None else None
    return {
        "run": shown.run, "workflow": shown.start.workflow, "instance": shown.start.instance,
        "version": shown.start.workflow_version or None, "pinned": shown.start.pinned,
        "queue": shown.start.queue, "tags": shown.start.tags, "started": shown.start.created,
        "status": str(shown.status), "reason": shown.status.reason or None,
        "ended": None if result is None else result.time,
        "result": None if isinstance(value, msgspec.UnsetType) else value,
        "error": failure, "attention": shown.attention, "cancel": shown.cancel,
        "published": {name: output.raw(value) for name, value in shown.published.items()},
        "steps": [_step_document(step) for step in shown.steps],
        "epochs": [{"epoch": e.epoch, "why": e.why, "worker": e.label, "time": e.time}
                   for e in shown.epochs],
    }  # fmt: skip


def _step_document(step: StepSummary) -> dict[str, object]:
    return {
        "path": step.path, "name": step.name, "outcome": step.outcome,
        "value": output.raw(step.value), "error": step.error or None, "attempts": step.attempts,
        "epoch": step.epoch, "time": step.time, "note": step.note or None,
        "traceback": step.traceback or None,
    }  # fmt: skip


def _said_of(asked: Cancel | None) -> str:
    if asked is None:
        return ""
    reason = f": {asked.reason}" if asked.reason else ""
    return f"asked for at {output.moment(asked.time)}{reason}"


def _print(shown: _Shown) -> None:
    start, result = shown.start, shown.result
    lasted = "" if result is None else output.lasting(result.time - start.created)
    tags = ", ".join(f"{key}={value}" for key, value in start.tags.items())
    failure = None if result is None else result.failure
    output.fields(
        [
            ("run", shown.run), ("workflow", start.workflow),
            ("version", f"{start.pin}, pinned" if start.pin else start.workflow_version),
            ("status", shown.status),
            ("why", shown.status.reason), ("queue", start.queue), ("tags", tags),
            ("started", output.moment(start.created)), ("took", lasted),
            ("cancel", _said_of(shown.cancel)),
            ("error", f"{failure.type}: {failure.message}" if failure else ""),
            *[("note", note) for note in (failure.notes if failure else ())],
        ]
    )  # fmt: skip
    _print_attention(shown)
    if shown.steps:
        print()
        output.table(
            ("call", "outcome", "value or error", "attempts", "epoch", "recorded"),
            [_step_row(step) for step in shown.steps],
        )
    output.notes([(step.path, step.note) for step in shown.steps if step.note])
    if shown.published:
        print()
        rows = [(name, output.short(value)) for name, value in shown.published.items()]
        output.table(("published", "value"), rows)
    if shown.epochs:
        print()
        output.table(("epoch", "why", "worker", "since"), [_epoch_row(e) for e in shown.epochs])
    if failure is not None:
        _print_raised(shown, f"{failure.type}: {failure.message}")
    if failure is not None and failure.traceback:
        print(f"\n{failure.traceback.rstrip()}")
        for line in causes.lines(failures.rebuild(failure)):
            print(line)


def _epoch_row(epoch: Epoch) -> tuple[str, ...]:
    since = output.moment(epoch.time)
    if epoch.worker:
        return str(epoch.epoch), epoch.why, epoch.label, since
    verb, _, who = epoch.label.partition(" by ")  # a person made this instance of an older one
    return str(epoch.epoch), verb, f"by {who}", since


def _print_raised(shown: _Shown, error: str) -> None:
    """Where in the step's body the error came from that ended the run."""
    raised = [s for s in shown.steps if s.outcome == "error" and s.error == error and s.traceback]
    if raised:
        print(f"\nIn the body of {raised[-1].path}:\n{raised[-1].traceback.rstrip()}")
        print("\nIn the workflow:", end="")


def _print_attention(shown: _Shown) -> None:
    if shown.damage is not None:
        output.fields([("remedy", shown.damage.hint or "")])
    elif shown.attention is not None:
        hint = shown.attention
        output.fields(
            [("call", hint.path), ("recorded", hint.recorded), ("asked", hint.asked),
             ("remedy", hint.hint)]
        )  # fmt: skip


def _step_row(step: StepSummary) -> tuple[str, ...]:
    said = output.cut(step.error) if step.error else output.short(step.value)
    if step.outcome not in {"value", "error", "retrying"}:
        said = ""
    recorded = output.moment(step.time)
    return step.path, step.outcome, said, str(step.attempts), str(step.epoch), recorded


# -- workers --------------------------------------------------------------------------------------


def workers(arguments: argparse.Namespace) -> int:
    """Workers that hold a lease or have shown themselves lately."""
    found, now = anyio.run(_workers, arguments)
    everyone = sorted(found.found.values(), key=lambda worker: (worker.state, worker.label))
    if arguments.json:
        output.document({"workers": everyone})
    elif everyone:
        rows = [
            (w.id, w.label, w.state, ",".join(w.queues), output.cut(", ".join(w.workflows)),
             f"{output.lasting(max(0.0, now - w.seen))} ago")
            for w in everyone
        ]  # fmt: skip
        output.table(("worker", "label", "state", "queues", "workflows", "seen"), rows)
    else:
        print("no workers")
    return exits.DONE


async def _workers(arguments: argparse.Namespace) -> tuple[Workers, float]:
    async with stores.existing(arguments) as client:
        return await Workers.read(client.store), client.store.now()


# -- sweep ----------------------------------------------------------------------------------------


def sweep(arguments: argparse.Namespace) -> int:
    """One pass: runs of dead workers become anybody's. Executes nothing."""
    asked = arguments.queues.split(",") if arguments.queues else None
    freed = anyio.run(_sweep, arguments, asked)
    if arguments.json:
        output.document({"freed": freed})
    else:
        for run in freed:
            print(f"{run}: its worker is dead, any other may take it")
        print(f"{len(freed)} runs freed")
    return exits.DONE


async def _sweep(arguments: argparse.Namespace, asked: Iterable[str] | None) -> tuple[str, ...]:
    async with stores.existing(arguments) as client:
        store = client.store
        folder = locks.runtime_folder(store.backend.lock_folder, os.environ)
        sweeper = Sweeper(store=store, runtime_folder=folder)
        queues = sorted(asked if asked is not None else await _queues(store))
        return tuple([run for queue in queues for run in await sweep_queue(sweeper, queue)])


async def _queues(store: Store) -> set[str]:
    """The queues that have runs which are not over."""
    return {queue_of(stored.name) async for stored in store.list("live/")}
