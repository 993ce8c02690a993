"""Verbs over many runs: which they are, whether the user means it, and how far it is."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence

from durable.cli import exits, output
from durable.client import Client, RunSummary
from durable.errors import DurableError, UsageError
from durable.protocol import durations

SHOWN = 20  # runs in the list of what will be done

Verb = Callable[[str], Awaitable[str]]


async def each(
    client: Client, arguments: argparse.Namespace, word: str, verb: Verb
) -> dict[str, DurableError | str]:
    """Do it for every run that is asked for; what came of each: what is said of it, or an error.

    Runs that are named are taken as they are. Runs that are chosen by filters are shown first,
    and the user is asked.

    Raises:
        UsageError: nobody is there to be asked.
    """
    runs = arguments.runs or await _chosen(client, arguments, word)
    if arguments.dry_run:
        return dict.fromkeys(runs, f"nothing was done; without --dry-run: {word}")
    done: dict[str, DurableError | str] = {}
    with progress(word, len(runs), silent=arguments.json or len(runs) < 2) as advance:
        for run in runs:
            try:
                done[run] = await verb(run)
            except DurableError as e:
                if len(runs) == 1:
                    raise
                done[run] = e
            advance()
    return done


def report(arguments: argparse.Namespace, done: dict[str, DurableError | str]) -> int:
    """Say what came of each run; the exit code is that of the first error."""
    failed = [error for error in done.values() if isinstance(error, DurableError)]
    if arguments.json:
        runs = [_document(run, said, done=not arguments.dry_run) for run, said in done.items()]
        output.document({"runs": runs})
    elif not done:
        print("no runs")
    elif arguments.dry_run and not arguments.runs:  # the list of them stands above
        print(f"{len(done)} runs: {next(iter(done.values()))}")
    else:
        for run, said in done.items():
            text = said.message if isinstance(said, DurableError) else said
            print(f"{run}: {text}")
    return exits.code_of(failed[0]) if failed else exits.DONE


def _document(run: str, said: DurableError | str, *, done: bool) -> dict[str, object]:
    if isinstance(said, DurableError):
        return {"run": run, "done": False, "error": {"code": said.code, "message": said.message}}
    return {"run": run, "done": done, "said": said}


# -- choosing --------------------------------------------------------------------------------------


def check_said(arguments: argparse.Namespace, word: str) -> None:
    """Raise UsageError unless runs are named, or something is said by which to choose them."""
    if not (arguments.runs or arguments.workflow or arguments.status or arguments.since):
        raise UsageError(
            f"nothing is said of which runs to {word}",
            hint="name them, or choose them: --workflow NAME, --status WORD, --since 1d",
        )


async def _chosen(client: Client, arguments: argparse.Namespace, word: str) -> Sequence[str]:
    since = None
    if arguments.since is not None:
        since = client.store.now() - durations.seconds(arguments.since)
    listed = client.list(workflow=arguments.workflow, status=arguments.status)
    runs = [run async for run in listed if since is None or (run.ended or run.started) >= since]
    if runs:
        _confirm(arguments, word, runs)
    return [run.id for run in runs]


def _confirm(arguments: argparse.Namespace, word: str, runs: Sequence[RunSummary]) -> None:
    if arguments.yes and not arguments.dry_run:
        return
    if not arguments.json:
        preview([(r.id, r.workflow, r.status, r.ended, r.status.reason) for r in runs])
    if arguments.dry_run:
        return
    if arguments.json or not sys.stdin.isatty():
        raise UsageError(
            f"{len(runs)} runs would be chosen to {word}: nothing was done",
            hint="say --yes to do it",
        )
    ask(word, len(runs))


def preview(runs: Sequence[tuple[str, str, str, float | None, str]]) -> None:
    """What will be done to which runs: of each its id, workflow, status, end, and why."""
    rows = [
        (run, workflow, status, output.moment(ended), output.cut(why))
        for run, workflow, status, ended, why in runs[:SHOWN]
    ]
    output.table(("run", "workflow", "status", "ended", "why"), rows)
    if len(runs) > SHOWN:
        print(f"and {len(runs) - SHOWN} more")


def ask(word: str, runs: int) -> None:
    """Ask whoever sits at the terminal.

    Raises:
        UsageError: they do not say yes.
    """
    if input(f"{word} these {runs} runs? [y/N] ").strip().lower() not in {"y", "yes"}:
        raise UsageError("nothing was done")


@contextlib.contextmanager
def progress(word: str, total: int, *, silent: bool) -> Iterator[Callable[[], None]]:
    """A bar on standard error, where that is a terminal."""
    if silent or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(word, total=total)
        yield lambda: bar.advance(task)
