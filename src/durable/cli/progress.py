"""What `run` shows while it runs: lines, and on a terminal also what is going on at the moment."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from durable.runtime.surroundings import Progress

if TYPE_CHECKING:
    from durable.runtime.surroundings import Observer


@contextlib.contextmanager
def shown(*, silent: bool) -> Iterator[Observer]:
    """An observer of runs; on standard error, because standard output is for the result."""
    if silent:
        yield lambda run, progress: None
    elif sys.stderr.isatty():
        with _live() as observe:
            yield observe
    else:
        yield _print_line


def _print_line(_run: str, progress: Progress) -> None:
    line = _line(progress)
    if line:
        print(line, file=sys.stderr, flush=True)


def _line(progress: Progress) -> str:
    """One line for what is worth one: outcomes, and attempts that failed."""
    match progress.kind:
        case "record":
            return f"{progress.path}: {'failed' if progress.failed else 'recorded'}"
        case "retry":
            return (
                f"{progress.path}: attempt {progress.attempt} failed, "
                f"the next in {progress.seconds:.1f} s"
            )
    return ""


@contextlib.contextmanager
def _live() -> Iterator[Observer]:
    """Lines above, and below them a spinner with the calls whose bodies run."""
    from rich.console import Console
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.text import Text

    running: dict[str, None] = {}
    spinner = Spinner("dots", text="starting")
    live = Live(
        spinner,
        console=Console(stderr=True),
        transient=True,
        # What steps print appears above, unless it goes somewhere else than to the terminal.
        redirect_stdout=sys.stdout.isatty(),
    )
    with live:

        def observe(run: str, progress: Progress) -> None:
            if progress.kind == "begin":
                running[progress.path] = None
            elif progress.kind == "record":
                running.pop(progress.path, None)
            line = _line(progress)
            if line:
                style = "red" if progress.failed else "green"
                live.console.print(Text(line, style=style))
            now = ", ".join(list(running)[:3]) or "between steps"
            more = f" and {len(running) - 3} more" if len(running) > 3 else ""
            spinner.update(text=Text(f"{run}: {now}{more}"))

        yield observe
