"""`run`, `start`, `result` and `cancel`."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sys

import anyio
import msgspec

from durable.cli import exits, inputs, loops, output, progress, stores
from durable.cli.exits import PATIENCE, Interrupted
from durable.cli.inputs import Asked
from durable.cli.interrupts import asked_to_stop
from durable.client import Skipped, connect, skipping
from durable.client.handles import outcome_of, recorded
from durable.errors import StoreError
from durable.protocol import durations, moments, values
from durable.runtime import watching
from durable.runtime.surroundings import Observer
from durable.system import watches


def run(arguments: argparse.Namespace) -> int:
    """Execute a run here, from wherever its record ends."""
    asked = inputs.read(arguments)
    if watches(usually=not arguments.json):  # else standard error is one document
        watching.begin()
    with progress.shown(silent=arguments.json) as observe:
        value = loops.run(_run, arguments, asked, observe)
    if isinstance(value, Skipped):
        return _skipped(arguments, asked.run, value)
    encoded = values.encode(value, asked.workflow.definition.returns)
    if arguments.json:
        output.document({"run": asked.run, "status": "completed", "result": msgspec.Raw(encoded)})
    else:
        print(encoded.decode())
    return exits.DONE


def _skipped(arguments: argparse.Namespace, run: str, skipped: Skipped) -> int:
    """The run never began: that is no error, and no result."""
    since = moments.second(round(skipped.since))
    if arguments.json:
        found = {"holder": skipped.holder, "since": since}
        output.document({"run": run, "status": "completed", "skipped": found, "result": None})
    else:
        print(f"skipped: run {skipped.holder!r} has the lock since {since}", file=sys.stderr)
    return exits.DONE


async def _run(arguments: argparse.Namespace, asked: Asked, observe: Observer) -> object:
    args, kwargs = asked.call
    with anyio.CancelScope() as scope, asked_to_stop(scope.cancel):
        async with connect(arguments.store, patience=PATIENCE, observe=observe) as client:
            return await client.run(asked.workflow, *args, **kwargs)
    raise Interrupted(
        f"run {asked.run!r} keeps what is recorded",
        f"go on with it: {_same_again(arguments, asked.run)}",
        asked.run,
    )


def _same_again(arguments: argparse.Namespace, run: str) -> str:
    """The command line that goes on: the same one, with the id if it was left to chance."""
    words = ["durable", *arguments.words]
    return shlex.join(words if arguments.id is not None else [*words, "--id", run])


def start(arguments: argparse.Namespace) -> int:
    """Start a run and leave it to a worker."""
    asked = inputs.read(arguments)
    loops.run(_start, arguments, asked)
    return exits.DONE


async def _start(arguments: argparse.Namespace, asked: Asked) -> None:
    args, kwargs = asked.call
    async with stores.at_hand(arguments) as client:
        handle = await client.start(asked.workflow, *args, **kwargs)
        if arguments.json:
            document = {"run": handle.id, "workflow": handle.workflow, "instance": handle.instance}
            output.document(document)
            return
        print(handle.id)
        status = None
        with contextlib.suppress(StoreError):  # whoever may start need not be allowed to look
            status = await handle.status()
        if status is not None and status.reason:
            print(f"{status}: {status.reason}", file=sys.stderr)


def result(arguments: argparse.Namespace) -> int:
    """Wait for the outcome of a run."""
    timeout = None if arguments.timeout is None else durations.seconds(arguments.timeout)
    return loops.run(_result, arguments, timeout)


async def _result(arguments: argparse.Namespace, timeout: float | None) -> int:
    async with stores.existing(arguments) as client:
        handle = await client.get(arguments.run)
        found = await recorded(handle, timeout, explained=True)
        if found.skipped is not None:
            return _skipped(arguments, handle.id, skipping.of(found.skipped))
        if found.status != "completed":
            outcome_of(handle, found)
        value = msgspec.Raw(b"null") if isinstance(found.value, msgspec.UnsetType) else found.value
    if arguments.json:
        output.document({"run": handle.id, "status": found.status, "result": value})
    else:
        print(bytes(value).decode())
    return exits.DONE


def cancel(arguments: argparse.Namespace) -> int:
    """Ask for a run to be cancelled; with --wait the exit code is that of its outcome."""
    timeout = None if arguments.timeout is None else durations.seconds(arguments.timeout)
    said = loops.run(_cancel, arguments, timeout)
    if arguments.json:
        output.document({"run": arguments.run, "answer" if not arguments.wait else "status": said})
    else:
        print(said)
    return exits.OUTCOMES.get(said, exits.DONE)


async def _cancel(arguments: argparse.Namespace, timeout: float | None) -> str:
    async with stores.existing(arguments) as client:
        handle = await client.get(arguments.run)
        answer = await handle.cancel(reason=arguments.reason)
        if not arguments.wait:
            return answer
        return (await recorded(handle, timeout, explained=True)).status
