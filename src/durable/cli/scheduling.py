"""`schedules`: what runs by itself, and when."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import anyio

from durable.cli import exits, inputs, output, stores
from durable.client import Client, ScheduleSummary
from durable.errors import UsageError
from durable.protocol import moments
from durable.protocol.schedules import Schedule, cron, every

NEXT_IN_LIST = 1


def schedules(arguments: argparse.Namespace) -> int:
    """Carry out one of the verbs; without one, list."""
    return _VERBS[arguments.verb](arguments)


def _with_client(
    arguments: argparse.Namespace, work: Callable[[Client], Awaitable[object]]
) -> object:
    async def main() -> object:
        creates = arguments.verb == "create"
        async with stores.at_hand(arguments) if creates else stores.existing(arguments) as client:
            return await work(client)

    return anyio.run(main)


# -- looking ---------------------------------------------------------------------------------------


def _list(arguments: argparse.Namespace) -> int:
    found: list[ScheduleSummary] = []

    async def read(client: Client) -> None:
        found.extend([schedule async for schedule in client.schedules.list()])

    _with_client(arguments, read)
    if arguments.json:
        output.document({"schedules": [_document(s) for s in found]})
    elif found:
        heads = ("schedule", "workflow", "when", "state", "next", "last", "why")
        output.table(heads, [_row(s) for s in found])
    else:
        print("no schedules")
    return exits.DONE


def _show(arguments: argparse.Namespace) -> int:
    found: list[ScheduleSummary] = []

    async def read(client: Client) -> None:
        found.append(await client.schedules.get(arguments.name))

    _with_client(arguments, read)
    shown = found[0]
    if arguments.json:
        output.document(_document(shown))
    else:
        _print(shown)
    return exits.DONE


def _document(schedule: ScheduleSummary) -> dict[str, object]:
    return {
        "schedule": schedule.name, "workflow": schedule.workflow, "when": schedule.when,
        "state": schedule.state, "reason": schedule.reason or None, "by": schedule.by,
        "queue": schedule.queue, "catch_up": schedule.catch_up, "overlap": schedule.overlap,
        "next": [moments.second(tick) for tick in schedule.next],
        "last": None if schedule.last is None else moments.second(schedule.last),
        "last_run": schedule.last_run or None, "queued": schedule.queued,
        "fired": schedule.fired, "missed": schedule.missed, "skipped": schedule.skipped,
    }  # fmt: skip


def _row(schedule: ScheduleSummary) -> tuple[str, ...]:
    return (
        schedule.name, schedule.workflow, schedule.when, schedule.state,
        output.moment(schedule.next[0]) if schedule.next else "",
        output.moment(schedule.last), output.cut(schedule.reason),
    )  # fmt: skip


def _print(schedule: ScheduleSummary) -> None:
    counts = f"{schedule.fired} run, {schedule.missed} missed, {schedule.skipped} skipped"
    output.fields(
        [
            ("schedule", schedule.name), ("workflow", schedule.workflow),
            ("when", schedule.when), ("state", schedule.state), ("why", schedule.reason),
            ("queue", schedule.queue), ("catch-up", schedule.catch_up),
            ("overlap", schedule.overlap), ("ticks", counts),
            ("queued", str(schedule.queued) if schedule.queued else ""),
            ("last run", schedule.last_run),
            ("next", ", ".join(output.moment(tick) for tick in schedule.next)),
        ]
    )  # fmt: skip


# -- changing --------------------------------------------------------------------------------------


def _create(arguments: argparse.Namespace) -> int:
    schedule = _schedule(arguments)
    asked = inputs.read(arguments)
    args, kwargs = asked.call
    found: list[ScheduleSummary] = []

    async def create(client: Client) -> None:
        found.append(
            await client.schedules.create(arguments.name, schedule, asked.workflow, *args, **kwargs)
        )

    _with_client(arguments, create)
    made = found[0]
    if arguments.json:
        output.document(_document(made))
    else:
        first = output.moment(made.next[0]) if made.next else "never"
        print(f"schedule {made.name!r} runs {made.workflow!r} {made.when}; next: {first}")
    return exits.DONE


def _schedule(arguments: argparse.Namespace) -> Schedule:
    catch_up = arguments.catch_up
    if catch_up.isdigit():
        catch_up = int(catch_up)
    overlap, jitter = arguments.overlap, arguments.jitter
    tz = "UTC" if arguments.tz is None else arguments.tz
    if arguments.cron is not None:
        return cron(arguments.cron, tz=tz, catch_up=catch_up, overlap=overlap, jitter=jitter)
    if arguments.tz is not None:
        raise UsageError(
            "--tz is of --cron: the ticks of --every are the multiples of it in UTC",
            hint="leave it out, or write --cron",
        )
    return every(arguments.every, catch_up=catch_up, overlap=overlap, jitter=jitter)


def _pause(arguments: argparse.Namespace) -> int:
    _with_client(arguments, lambda client: client.schedules.pause(arguments.name))
    return _done(arguments, "paused")


def _resume(arguments: argparse.Namespace) -> int:
    _with_client(arguments, lambda client: client.schedules.resume(arguments.name))
    return _done(arguments, "resumed")


def _remove(arguments: argparse.Namespace) -> int:
    found: list[ScheduleSummary] = []

    async def remove(client: Client) -> None:
        schedules = client.schedules.list()  # `get` raises for a damaged one
        found.extend([s async for s in schedules if (s.name, s.by) == (arguments.name, "code")])
        await client.schedules.remove(arguments.name)

    _with_client(arguments, remove)
    for schedule in found:
        print(
            f"it stands in the code of workflow {schedule.workflow!r} and comes back when a "
            "worker starts: take it out there, or pause it instead",
            file=sys.stderr,
        )
    return _done(arguments, "removed")


def _done(arguments: argparse.Namespace, what: str) -> int:
    if arguments.json:
        output.document({"schedule": arguments.name, "done": what})
    else:
        print(f"schedule {arguments.name!r} is {what}")
    return exits.DONE


def _trigger(arguments: argparse.Namespace) -> int:
    run = _with_client(arguments, lambda client: client.schedules.trigger(arguments.name))
    if arguments.json:
        output.document({"schedule": arguments.name, "run": run})
    else:
        print(run)
    return exits.DONE


def _backfill(arguments: argparse.Namespace) -> int:
    first, last = _moment(arguments.start), _moment(arguments.end)
    begun: list[str] = []

    async def backfill(client: Client) -> None:
        begun.extend(
            await client.schedules.backfill(arguments.name, first, last, limit=arguments.limit)
        )

    _with_client(arguments, backfill)
    if arguments.json:
        output.document({"schedule": arguments.name, "runs": begun})
        return exits.DONE
    for run in begun:
        print(run)
    print(f"{len(begun)} runs started")
    return exits.DONE


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as e:
        raise UsageError(
            f"{text!r} is no moment", hint="write 2026-11-29 or 2026-11-29T02:00+01:00"
        ) from e
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


_VERBS: dict[str, Callable[[argparse.Namespace], int]] = {
    "list": _list, "show": _show, "create": _create, "pause": _pause, "resume": _resume,
    "trigger": _trigger, "backfill": _backfill, "remove": _remove,
}  # fmt: skip
