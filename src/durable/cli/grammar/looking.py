"""Looking at runs and workers, and at runs as they would go today."""

from __future__ import annotations

from durable.cli.grammar.words import STATUSES, Commands, command


def list_(commands: Commands) -> None:
    parser = command(commands, "list", "showing", "list runs: those not over, then the newest")
    parser.add_argument("--workflow", metavar="NAME", help="only this workflow's")
    parser.add_argument("--status", choices=STATUSES, help="only those of this status")
    parser.add_argument("--limit", type=int, default=100, help="at most so many; default: 100")


def show(commands: Commands) -> None:
    parser = command(commands, "show", "showing", "show one run: its status and recorded calls")
    parser.add_argument("run", metavar="RUN")


def tail(commands: Commands) -> None:
    parser = command(
        commands, "tail", "tailing", "follow a run's calls and published progress until it is over"
    )
    parser.add_argument("run", metavar="RUN")


def workers(commands: Commands) -> None:
    command(commands, "workers", "showing", "list the workers")


def replay(commands: Commands) -> None:
    parser = command(
        commands,
        "replay",
        "replaying",
        "compare today's code with a run's record; executes no step",
    )
    parser.add_argument("run", metavar="RUN", nargs="?", help="or a file that `export` wrote")
    parser.add_argument(
        "--target", action="append", default=[], metavar="TARGET",
        help="where the workflow is; default: `targets` of [tool.durable]",
    )  # fmt: skip
    parser.add_argument("--until", metavar="STEP", help="stop once this call has its outcome")
    parser.add_argument(
        "--pdb", action="store_true", help="open the debugger there, or at the first difference"
    )
    parser.add_argument("--all", action="store_true", help="every run that is not over, or:")
    parser.add_argument("--status", choices=STATUSES, help="with --all: those of this status")
    parser.add_argument("--workflow", metavar="NAME", help="with --all: only this workflow's")
    parser.add_argument(
        "--timeout", metavar="DURATION", help="for the replay of one run; default: 1m"
    )


def export(commands: Commands) -> None:
    parser = command(commands, "export", "replaying", "write a run into one readable file")
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("file", metavar="FILE", help="- for standard output")


def import_(commands: Commands) -> None:
    parser = command(commands, "import", "replaying", "put an exported run into this store")
    parser.add_argument("file", metavar="FILE")


def lint(commands: Commands) -> None:
    parser = command(
        commands, "lint", "linting", "find what in workflows would not be the same on a replay"
    )
    parser.add_argument("paths", metavar="PATH", nargs="+", help="Python files, or folders of them")
