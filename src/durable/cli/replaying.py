"""`replay`, `export` and `import`: a run's record on this desk."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Mapping
from pathlib import Path

import anyio
import anyio.to_thread

from durable.cli import exits, output, selecting, stores
from durable.cli.debugging import Watcher
from durable.cli.targets import served
from durable.client import Client, archives, reading
from durable.client.apart import compare_apart
from durable.client.replaying import LIMIT, Replay, Watch, compare
from durable.errors import NeedsAttention, NotFound, UnknownWorkflow, UsageError
from durable.protocol import durations
from durable.runtime.definitions import WorkflowDefinition, code_for
from durable.store import Store

Known = Mapping[str, WorkflowDefinition]


def replay(arguments: argparse.Namespace) -> int:
    """Print the calls that code and record have in common, and the first difference."""
    _refuse_contradictions(arguments)
    known = served(arguments.target, arguments.store)
    if arguments.all:
        return _replay_all(arguments, known)
    done = anyio.run(_replay, arguments, known)
    if arguments.json:
        output.document(_document(arguments.run, done))
    else:
        _print(done)
    return exits.ATTENTION if done.difference else exits.DONE


def _refuse_contradictions(arguments: argparse.Namespace) -> None:
    """One run or all of them: what belongs to the other is not silently passed over."""
    of_one = {"RUN": arguments.run, "--until": arguments.until, "--pdb": arguments.pdb}
    of_all = {f"--{n}": getattr(arguments, n) for n in ("status", "workflow")}
    for word, given in (of_one if arguments.all else of_all).items():
        if given:
            goes = "with one run, not with --all" if arguments.all else "with --all"
            raise UsageError(
                f"{word} goes {goes}", hint="durable replay RUN, or --all --status running"
            )
    if arguments.pdb and arguments.timeout is not None:
        raise UsageError("--pdb takes no --timeout: the debugger waits for you")
    if not arguments.all and arguments.run is None:
        raise UsageError("replay which run?", hint="durable replay RUN, or --all --status running")


async def _replay(arguments: argparse.Namespace, known: Known) -> Replay:
    watch = Watcher(arguments.until, arguments.pdb)
    done = await _replay_watched(arguments, known, watch)
    if watch.left:
        return Replay(calls=done.calls, end="the debugger was left, and the replay with it")
    if arguments.until is not None and not watch.reached and not done.difference:
        raise NotFound(
            f"run {arguments.run!r} has recorded no call {arguments.until!r}",
            hint="name a call as `durable show` has it, or a step",
            run=arguments.run,
        )
    return done


def _limit(arguments: argparse.Namespace) -> float:
    return LIMIT if arguments.timeout is None else durations.seconds(arguments.timeout)


async def _replay_watched(arguments: argparse.Namespace, known: Known, watch: Watch) -> Replay:
    limit = _limit(arguments)
    if Path(arguments.run).is_file():  # noqa: ASYNC240  # once, before anything runs
        archive = archives.read(Path(arguments.run).read_bytes())  # noqa: ASYNC240  # as above
        store = await archives.unpacked(archive)
        return await _replay_in(store, archive.run, known, watch, limit)
    async with stores.existing(arguments) as client:
        return await _replay_in(client.store, arguments.run, known, watch, limit)


async def _replay_in(store: Store, run: str, known: Known, watch: Watch, limit: float) -> Replay:
    facts = await reading.load(store, run)
    definition = code_for(known, facts.start)
    if definition is None:
        pinned = f" and pinned to version {facts.start.pin!r}" if facts.start.pin else ""
        raise UnknownWorkflow(
            f"run {run!r} is of workflow {facts.start.workflow!r}{pinned}, which no target defines",
            hint=f"name the file or module: durable replay {run} --target ...",
            run=run,
        )
    if isinstance(watch, Watcher) and watch.pdb:  # here, where the terminal is
        done = await compare(store, run, facts, watch.seen(definition), watch=watch, limit=None)
        await anyio.to_thread.run_sync(watch.wait, abandon_on_cancel=True)
        return done
    return await compare_apart(store, run, facts, definition, watch=watch, limit=limit)


# -- all of them -----------------------------------------------------------------------------------


def _replay_all(arguments: argparse.Namespace, known: Known) -> int:
    """Whether today's code could go on with every run of that status."""
    found = anyio.run(_compare_all, arguments, known)
    differing = {run: said for run, said in found.items() if said}
    if arguments.json:
        runs = [
            {"run": run, "fits": not said, "difference": said or None}
            for run, said in found.items()
        ]
        output.document({"runs": runs})
    else:
        if differing:
            output.table(("run", "difference"), list(differing.items()))
        print(f"{len(found)} runs, {len(differing)} of them do not fit this code")
    return exits.ATTENTION if differing else exits.DONE


async def _compare_all(arguments: argparse.Namespace, known: Known) -> dict[str, str]:
    limit = _limit(arguments)
    async with stores.existing(arguments) as client:
        runs = await _those_of_all(client, arguments)
        found: dict[str, str] = {}
        with selecting.progress("replay", len(runs), silent=arguments.json) as advance:
            for run in runs:
                with contextlib.suppress(NotFound):  # purged since it was listed
                    found[run] = await _difference(client, run, known, limit)
                advance()
    return found


async def _those_of_all(client: Client, arguments: argparse.Namespace) -> list[str]:
    runs = []
    async for run in client.list(status=arguments.status, workflow=arguments.workflow):
        if arguments.status is None and run.ended is not None:
            break  # the first that is over: those that are not come first
        runs.append(run.id)
    return runs


async def _difference(client: Client, run: str, known: Known, limit: float) -> str:
    """What keeps this code from going on with the run; empty if it fits."""
    try:
        return (await _replay_in(client.store, run, known, lambda _: True, limit)).difference
    except (NeedsAttention, UnknownWorkflow) as e:
        return e.message


# -- files -----------------------------------------------------------------------------------------


def export(arguments: argparse.Namespace) -> int:
    """Everything that is recorded of a run, as one readable file."""

    async def work() -> bytes:
        async with stores.existing(arguments) as client:
            return await archives.export(client.store, arguments.run)

    content = anyio.run(work)
    if arguments.file == "-":
        output.stream().buffer.write(content + b"\n")
        return exits.DONE
    _write(Path(arguments.file), content + b"\n")
    objects = len(archives.read(content).objects)
    if arguments.json:
        output.document({"run": arguments.run, "file": arguments.file, "objects": objects})
    else:
        print(f"{arguments.run}: {objects} objects, in {arguments.file}")
    return exits.DONE


def _write(file: Path, content: bytes) -> None:
    try:
        file.write_bytes(content)
    except OSError as e:
        raise UsageError(f"the file {str(file)!r} cannot be written: {e.strerror or e}") from e


def import_(arguments: argparse.Namespace) -> int:
    """Put an exported run into this store; nobody executes it."""
    try:
        content = Path(arguments.file).read_bytes()
    except OSError as e:
        raise UsageError(f"the file {arguments.file!r} cannot be read: {e.strerror or e}") from e
    archive = archives.read(content)

    async def work() -> None:
        async with stores.at_hand(arguments) as client:
            await archives.write(client.store, archive)

    anyio.run(work)
    over = archive.result is not None
    if arguments.json:
        output.document({"run": archive.run, "over": over})
    else:
        print(archive.run)
        if not over:
            print(f"it is not over: `durable retry {archive.run}` lets it go on", file=sys.stderr)
    return exits.DONE


# -- saying it -------------------------------------------------------------------------------------


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
    """Recorded and asked side by side, then what that means."""
    rows = [(path, outcome, path) for path, outcome in done.calls]
    rest = list(done.unasked)
    if done.recorded or done.asked:
        rows.append((done.recorded, "", done.asked))
        rest = [path for path in rest if path != done.recorded]
    rows += [(path, "", "") for path in rest]
    if rows:
        output.table(("recorded", "outcome", "asked now"), rows)
    print(f"difference: {done.difference}" if done.difference else done.end)
