"""Mending what does not go on by itself, and removing what is over."""

from __future__ import annotations

from durable.cli.grammar.words import STATUSES, Commands, Parser, command, reason


def sweep(commands: Commands) -> None:
    parser = command(
        commands, "sweep", "showing", "hand the runs of dead workers to the live; executes nothing"
    )
    parser.add_argument("--queues", help="separated by commas; default: all")


def retry(commands: Commands) -> None:
    parser = command(commands, "retry", "repairing", "let failed runs go on from what failed")
    _choosing(parser)
    reason(parser)


def restart(commands: Commands) -> None:
    parser = command(commands, "restart", "repairing", "run again from the beginning")
    _choosing(parser)
    reason(parser)


def _choosing(parser: Parser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="*", help="or choose them by these:")
    parser.add_argument("--workflow", metavar="NAME", help="runs of this workflow")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--status", choices=STATUSES, help="runs of this status")
    for word in ("failed", "cancelled"):
        which.add_argument(
            f"--{word}", dest="status", action="store_const", const=word, help=f"--status {word}"
        )
    parser.add_argument("--since", metavar="DURATION", help="runs that ended in the last 1d, 2h")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--dry-run", action="store_true", help="only say which runs these are")


def fork(commands: Commands) -> None:
    parser = command(
        commands, "fork", "repairing", "start a new run with the past of another up to a call"
    )
    parser.add_argument("run", metavar="RUN")
    parser.add_argument(
        "--from", required=True, metavar="STEP", help="the first call that is made anew"
    )
    parser.add_argument("--id", help="of the new run; default: a random one")
    parser.add_argument("--input", metavar="JSON", help="of the new run; default: the same")
    parser.add_argument(
        "--target", metavar="TARGET", help="with --input: where the workflow is, to check it"
    )
    reason(parser)


def skip(commands: Commands) -> None:
    parser = command(
        commands, "skip", "repairing", "say what a call returns that cannot get there by itself"
    )
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("step", metavar="STEP", help="the path of the call, as `show` has it")
    parser.add_argument("--with", required=True, metavar="JSON", help="what it returns")
    reason(parser)


def release(commands: Commands) -> None:
    parser = command(commands, "release", "repairing", "take a run from the worker that holds it")
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("--force", action="store_true", help="fence it, even if it is alive")


def purge(commands: Commands) -> None:
    parser = command(commands, "purge", "repairing", "remove all that is recorded of runs")
    _choosing(parser)
    parser.add_argument("--force", action="store_true", help="also of runs that are not over")


def gc(commands: Commands) -> None:
    parser = command(commands, "gc", "repairing", "purge the runs that ended long ago")
    parser.add_argument("--older-than", required=True, metavar="DURATION", help="30d, 12h")
    parser.add_argument("--dry-run", action="store_true", help="only show and count them")
    parser.add_argument("--yes", action="store_true", help="do not ask at a terminal")
