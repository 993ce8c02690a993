"""Runs that went wrong or are old: `retry`, `restart`, `fork`, `skip`, `release`, `purge`, `gc`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import anyio

from durable.cli import exits, inputs, output, selecting, stores
from durable.client import Client, purging, reading
from durable.errors import DurableError, StoreError, UsageError
from durable.protocol import durations, values

T = TypeVar("T")

Done = dict[str, DurableError | str]


def retry(arguments: argparse.Namespace) -> int:
    """Let failed runs go on from what failed."""

    async def verb(client: Client, run: str) -> str:
        await client.retry(run, reason=arguments.reason)
        return "goes on from what failed"

    return _each(arguments, "retry", verb)


def restart(arguments: argparse.Namespace) -> int:
    """Run them again from the beginning."""

    async def verb(client: Client, run: str) -> str:
        await client.restart(run, reason=arguments.reason)
        return "begins anew"

    return _each(arguments, "restart", verb)


def purge(arguments: argparse.Namespace) -> int:
    """Remove everything that is recorded of them."""

    async def verb(client: Client, run: str) -> str:
        removed = await client.purge(run, force=arguments.force)
        return f"gone, {removed} objects"

    return _each(arguments, "purge", verb)


def release(arguments: argparse.Namespace) -> int:
    """Take a run from its worker."""

    async def verb(client: Client) -> bool:
        return await client.release(arguments.run, force=arguments.force)

    released = _with_client(arguments, verb)
    if arguments.json:
        output.document({"run": arguments.run, "released": released})
    else:
        print(f"{arguments.run}: {'anybody may take it' if released else 'nobody holds it'}")
    return exits.DONE


def fork(arguments: argparse.Namespace) -> int:
    """A new run with the past of this one up to a call."""

    async def verb(client: Client) -> str:
        start = await reading.read_start(client.store, arguments.run)
        given = inputs.encoded(arguments, start)
        handle = await client.fork(
            arguments.run, getattr(arguments, "from"), new_id=arguments.id, input=given,
            reason=arguments.reason,
        )  # fmt: skip
        return handle.id

    run = _with_client(arguments, verb)
    if arguments.json:
        output.document({"run": run, "forked_from": arguments.run})
    else:
        print(run)
    return exits.DONE


def skip(arguments: argparse.Namespace) -> int:
    """Say what a call returns that cannot get there by itself."""
    given = getattr(arguments, "with").encode()
    try:
        value = values.decode(given)
    except values.Undecodable as e:
        raise UsageError(f"--with is no value as JSON: {e}") from e
    values.parsed(given)  # for what decoding passes over

    async def verb(client: Client) -> None:
        await client.skip(arguments.run, arguments.step, value, reason=arguments.reason)

    _with_client(arguments, verb)
    if arguments.json:
        output.document({"run": arguments.run, "call": arguments.step})
    else:
        print(f"{arguments.run}: {arguments.step} returns {output.short(value)}")
    return exits.DONE


def gc(arguments: argparse.Namespace) -> int:
    """Purge the runs that ended long ago."""
    age = durations.seconds(arguments.older_than)
    collected = anyio.run(_gc, arguments, age)
    runs, objects = collected.runs - len(collected.failed), collected.objects
    if arguments.json:
        failed = [
            {"run": run, "error": {"code": e.code, "message": e.message}}
            for run, e in collected.failed.items()
        ]
        output.document(
            {"runs": runs, "objects": objects, "dry_run": arguments.dry_run, "failed": failed}
        )
    elif arguments.dry_run:
        print(f"{runs} runs would be purged")
    else:
        print(f"{runs} runs purged, {objects} objects")
    if not arguments.json:
        for run, error in collected.failed.items():
            print(f"{run}: {error.message}", file=sys.stderr)
    return exits.code_of(next(iter(collected.failed.values()))) if collected.failed else exits.DONE


@dataclass
class _Collected:
    """What came of `gc`.

    Attributes:
        runs: how many are old enough.
        failed: those that could not be purged, and why.
    """

    runs: int
    objects: int = 0
    failed: dict[str, DurableError] = field(default_factory=dict)


async def _gc(arguments: argparse.Namespace, age: float) -> _Collected:
    async with stores.existing(arguments) as client:
        entries = [entry async for entry in purging.expired(client.store, age)]
        # A run has an entry for each of its instances.
        collected = _Collected(runs=len({entry.run for entry in entries}))
        asks = sys.stdin.isatty() and not arguments.yes
        if entries and not arguments.json and (asks or arguments.dry_run):
            last = {entry.run: entry for entry in entries}.values()
            selecting.preview([(e.run, e.workflow, e.status, e.ended, e.why) for e in last])
        if arguments.dry_run:
            return collected
        if entries and asks and not arguments.json:
            selecting.ask("purge", collected.runs)
        with selecting.progress("purge", len(entries), silent=arguments.json) as advance:
            for entry in entries:
                try:
                    collected.objects += await purging.purge_ended(client.store, entry)
                except StoreError:
                    raise  # the others would fare no better
                except DurableError as e:  # a damaged one keeps no other from being purged
                    collected.failed[entry.run] = e
                advance()
        return collected


# -- inside ----------------------------------------------------------------------------------------


def _each(
    arguments: argparse.Namespace, word: str, verb: Callable[[Client, str], Awaitable[str]]
) -> int:
    selecting.check_said(arguments, word)

    async def work(client: Client) -> Done:
        return await selecting.each(client, arguments, word, partial(verb, client))

    return selecting.report(arguments, _with_client(arguments, work))


def _with_client(arguments: argparse.Namespace, work: Callable[[Client], Awaitable[T]]) -> T:
    async def connected() -> T:
        async with stores.existing(arguments) as client:
            return await work(client)

    return anyio.run(connected)
