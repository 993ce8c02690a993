"""`queues`: how long they are, who holds their slots, and whether they are paused."""

from __future__ import annotations

import argparse

import anyio

from durable.cli import exits, output, stores
from durable.client import QueueSummary
from durable.errors import UsageError


def queues(arguments: argparse.Namespace) -> int:
    """List the queues, or pause or resume one, or all runs of a workflow."""
    if arguments.verb == "list":
        if arguments.name is not None or arguments.workflow is not None:
            raise UsageError("`durable queues list` takes no QUEUE and no --workflow")
        return _list(arguments)
    if arguments.name is None and arguments.workflow is None:
        raise UsageError(f"`durable queues {arguments.verb}` needs a QUEUE, or --workflow NAME")
    anyio.run(_set, arguments)
    what = [f"queue {arguments.name!r}"] if arguments.name is not None else []
    what += [f"workflow {arguments.workflow!r}"] if arguments.workflow is not None else []
    done = {"pause": "paused", "resume": "resumed"}[arguments.verb]
    if arguments.json:
        output.document({"queue": arguments.name, "workflow": arguments.workflow, "done": done})
    else:
        print(f"{' and '.join(what)}: {done}")
    return exits.DONE


async def _set(arguments: argparse.Namespace) -> None:
    pauses = arguments.verb == "pause"
    async with stores.at_hand(arguments) if pauses else stores.existing(arguments) as client:
        change = client.queues.pause if pauses else client.queues.resume
        await change(queue=arguments.name, workflow=arguments.workflow)


def _list(arguments: argparse.Namespace) -> int:
    found, paused, now = anyio.run(_read, arguments)
    if arguments.json:
        output.document({"queues": found, "paused_workflows": paused})
        return exits.DONE
    if found:
        heads = ("queue", "limit", "state", "waiting", "oldest", "running", "slots held by")
        output.table(heads, [_row(queue, now) for queue in found])
    else:
        print("no queues")
    if paused:
        print(f"paused workflows: {', '.join(paused)}")
    return exits.DONE


async def _read(
    arguments: argparse.Namespace,
) -> tuple[list[QueueSummary], tuple[str, ...], float]:
    async with stores.existing(arguments) as client:
        found = [queue async for queue in client.queues.list()]
        return found, await client.queues.paused_workflows(), client.store.now()


def _row(queue: QueueSummary, now: float) -> tuple[str, ...]:
    limits = [] if queue.concurrency is None else [f"{queue.concurrency} at once"]
    if queue.rate is not None:
        limits.append(f"{queue.rate[0]} in {output.lasting(queue.rate[1])}")
    oldest = "" if queue.oldest is None else output.lasting(max(0.0, now - queue.oldest))
    return (
        queue.name, ", ".join(limits), "paused" if queue.paused else "open", str(queue.depth),
        oldest, str(queue.running), output.cut(", ".join(queue.holders)),
    )  # fmt: skip
