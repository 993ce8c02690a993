"""`worker`: a process that executes runs."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Collection
from functools import partial
from pathlib import Path

import anyio
import anyio.abc
import msgspec

from durable.cli import exits, loops, output
from durable.cli.interrupts import asked_to_stop
from durable.cli.targets import load_all
from durable.configuration import code_version, settings
from durable.errors import UsageError
from durable.protocol import durations, names
from durable.protocol.leases import Terms
from durable.protocol.names import check_id
from durable.runtime import locks
from durable.runtime.definitions import Workflows
from durable.runtime.identity import Options
from durable.runtime.worker import Worker
from durable.store import Store
from durable.store.opening import open_store
from durable.system import label

log = logging.getLogger("durable")

UNWIND_TIMEOUT = 1.0  # seconds for tasks to end after the drain; then the process ends anyway


def worker(arguments: argparse.Namespace) -> int:
    """Execute runs until stopped, or until there is nothing to do."""
    output.whole_lines()
    _log_to_stderr()
    if arguments.processes != 1:
        return _fleet(arguments)
    found = settings(arguments.store, os.environ, Path.cwd())
    options = _options(arguments)
    if arguments.targets:
        served = load_all(arguments.targets)
    else:
        served = load_all(found.targets, found.folder)
    suited = _suited(served, arguments.label)
    if not suited:
        raise UsageError(
            "the worker is to serve nothing",
            hint="name a TARGET, or put `targets` into [tool.durable] of pyproject.toml",
        )
    store = open_store(found.store)
    options = msgspec.structs.replace(
        options,
        version=arguments.code_version or code_version(suited.values()),
        runtime_folder=locks.runtime_folder(store.backend.lock_folder, os.environ),
    )
    work = partial(_work, until_idle=arguments.until_idle, as_json=arguments.json)
    carrier, parked = loops.run(work, store, suited, options)
    _tell(carrier, options.label, parked, as_json=arguments.json)
    return exits.DONE


def _fleet(arguments: argparse.Namespace) -> int:
    if arguments.processes < 1:
        raise UsageError("--processes must be at least 1")
    from durable.cli import fleet

    return fleet.run(arguments)


def _suited(served: Workflows, labels: Collection[str]) -> Workflows:
    """What may run here: a workflow that needs a label is for workers that have it alone."""
    suited = {name: d for name, d in served.items() if not d.label or d.label in labels}
    for name in sorted(served.keys() - suited.keys()):
        log.info("%s needs the label %r: left to other workers", name, served[name].label)
    return suited


def _tell(carrier: str, label: str, parked: int = 0, *, as_json: bool) -> None:
    if as_json:
        output.document({"worker": carrier, "label": label, "parked": parked})
    elif parked:
        print(
            f"runs that wait and need no worker now: {parked} (durable list --status parked)",
            file=sys.stderr,
        )


async def _count_parked(store: Store) -> int:
    """How many runs wait for a time, an event or another run."""
    return len({names.timer_run(stored.name) async for stored in store.list(names.TIMERS)})


def _options(arguments: argparse.Namespace) -> Options:
    for name in ("concurrency", "threads"):
        if getattr(arguments, name) < 1:
            raise UsageError(f"--{name} must be at least 1")
    queues = tuple(arguments.queues.split(","))
    for queue in queues:
        check_id(queue, what="queue")
    for served in arguments.label:
        check_id(served, what="label")
    return Options(
        queues=queues, concurrency=arguments.concurrency, threads=arguments.threads,
        terms=Terms.of(durations.seconds(arguments.ttl)),
        grace=durations.seconds(arguments.grace), label=arguments.name or label(),
    )  # fmt: skip


async def _work(
    store: Store, served: Workflows, options: Options, *, until_idle: bool, as_json: bool
) -> tuple[str, int]:
    """The id that the worker had at the end, and how many runs it leaves parked if it is idle."""
    carrier = Worker(store, served, options)
    parked = 0
    ended = anyio.Event()

    async def work(task_status: anyio.abc.TaskStatus[None]) -> None:
        await carrier.run(until_idle=until_idle, task_status=task_status)
        ended.set()

    try:
        await store.patient(exits.PATIENCE).check()
        async with anyio.create_task_group() as tasks:
            await tasks.start(work)
            with asked_to_stop(carrier.stop):
                # From this line on a signal drains; before, nothing is held.
                log.info("worker %s (%s) serves %s", carrier.id, options.label, ", ".join(served))
                await carrier.drained.wait()
                with anyio.move_on_after(UNWIND_TIMEOUT):
                    await ended.wait()
                if not ended.is_set():
                    log.warning("a task that does not unwind is left behind: the process ends")
                    _tell(carrier.id, options.label, as_json=as_json)
                    exits.leave_now(exits.DONE)
        if until_idle and carrier.refusal is None:
            parked = await _count_parked(store)
    finally:
        with anyio.CancelScope(shield=True):
            await store.aclose()
    log.info("worker %s (%s) has stopped", carrier.id, options.label)
    if carrier.refusal is not None:
        raise carrier.refusal
    return carrier.id, parked


def _log_to_stderr() -> None:
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s"
    )
    log.setLevel(logging.INFO)
