"""The command line's grammar. Each command's module is imported when it is called for."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Sequence
from typing import NoReturn

from durable.errors import UsageError

STATUSES = ("waiting", "running", "parked", "needs-attention", "completed", "failed", "cancelled")

Command = Callable[[argparse.Namespace], int]


class _Parser(argparse.ArgumentParser):
    """Reports what is wrong as every other error is reported."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}", hint=f"`{self.prog} --help` tells more")


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The arguments as a namespace, with `words` and the `command` to call.

    Raises:
        UsageError: they do not fit the grammar.
    """
    parser = _Parser(prog="durable", description="Durable Python workflows.")
    _common(parser, store=None, as_json=False)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for add in (
        _run,
        _start,
        _worker,
        _list,
        _show,
        _result,
        _tail,
        _send,
        _cancel,
        _sweep,
        _workers,
        _schedules,
        _queues,
        _leases,
        _replay,
        _export,
        _import,
        _demo,
        _doctor,
        _init,
        _retry,
        _restart,
        _fork,
        _skip,
        _release,
        _purge,
        _gc,
        _lint,
    ):
        add(commands)
    arguments = parser.parse_args(words)
    arguments.words = list(words)
    return arguments


def _common(parser: argparse.ArgumentParser, *, store: object, as_json: object) -> None:
    parser.add_argument(
        "--store", metavar="URL", default=store,
        help="where the runs are; default: DURABLE_STORE, [tool.durable], .durable/durable.db",
    )  # fmt: skip
    parser.add_argument(
        "--json", action="store_true", default=as_json,
        help="one JSON document on standard output, errors as one on standard error",
    )  # fmt: skip


def _command(
    commands: argparse._SubParsersAction[_Parser], name: str, where: str, said: str
) -> _Parser:
    parser = commands.add_parser(name, help=said, description=said[0].upper() + said[1:] + ".")
    # Both flags may stand before the command or behind it; left out, they override nothing.
    _common(parser, store=argparse.SUPPRESS, as_json=argparse.SUPPRESS)

    def call(arguments: argparse.Namespace) -> int:
        module = importlib.import_module(f"durable.cli.{where}")
        # A command may be called as a keyword of Python is.
        command: Command = getattr(module, name, None) or getattr(module, f"{name}_")
        return command(arguments)

    parser.set_defaults(command=call)
    return parser


def _starting(parser: _Parser) -> None:
    parser.add_argument("target", metavar="TARGET", help="file.py, file.py:name, module[:name]")
    parser.add_argument(
        "--input", metavar="JSON",
        help="an object (keyword arguments), an array (positional), @file, or - for stdin",
    )  # fmt: skip
    parser.add_argument("--queue", help="where workers look for it")
    parser.add_argument(
        "--tag", action="append", default=[], metavar="KEY=VALUE", help="shown in lists"
    )


def _with_id(parser: _Parser) -> None:
    parser.add_argument("--id", help="the run's id; default: a random one")
    _starting(parser)


def _run(commands: argparse._SubParsersAction[_Parser]) -> None:
    _with_id(
        _command(commands, "run", "running", "start a run, or go on with it, and execute it here")
    )


def _start(commands: argparse._SubParsersAction[_Parser]) -> None:
    _with_id(_command(commands, "start", "running", "start a run and leave it to a worker"))


def _worker(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = _command(commands, "worker", "working", "execute runs until stopped")
    parser.add_argument("targets", metavar="TARGET", nargs="*", help="what it serves")
    parser.add_argument("--until-idle", action="store_true", help="end when no run needs a worker")
    parser.add_argument("--queues", default="default", help="separated by commas; default: default")
    parser.add_argument("--concurrency", type=int, default=100, help="runs at once; default: 100")
    parser.add_argument(
        "--threads", type=int, default=40, help="plain functions at once; default: 40"
    )
    parser.add_argument("--ttl", default="20s", help="of its lease, at least 12s; default: 20s")
    parser.add_argument(
        "--grace", default="8s", help="for bodies in flight when it is stopped; default: 8s"
    )
    parser.add_argument("--name", help="of this worker, for people; default: host and process id")
    parser.add_argument(
        "--label", action="append", default=[],
        help="what this machine has, for workflows that need it: @workflow(label=...)",
    )  # fmt: skip
    parser.add_argument(
        "--processes", type=int, default=1, help="so many workers side by side; default: 1"
    )
    parser.add_argument(
        "--code-version", metavar="TEXT", help="default: a digest of the targets' source files"
    )


def _list(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = _command(commands, "list", "showing", "list runs: those not over, then the newest")
    parser.add_argument("--workflow", metavar="NAME", help="only this workflow's")
    parser.add_argument("--status", choices=STATUSES, help="only those of this status")
    parser.add_argument("--limit", type=int, default=100, help="at most so many; default: 100")


def _show(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = _command(commands, "show", "showing", "show one run: its status and recorded calls")
    parser.add_argument("run", metavar="RUN")


def _result(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = _command(commands, "result", "running", "wait for a run and print what it returned")
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("--timeout", metavar="DURATION", help="30, 1h30m; default: for ever")


def _tail(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = _command(
        commands, "tail", "tailing", "follow a run's calls and published progress until it is over"
    )
    parser.add_argument("run", metavar="RUN")


def _send(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = _command(commands, "send", "sending", "send an event to a run")
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("name", metavar="NAME", help="of the event that the run waits for")
    parser.add_argument(
        "--input", metavar="JSON", help="its value, @file, or - for stdin; default: null"
    )
    parser.add_argument("--key", help="the same key again is the same event; default: a new one")
    parser.add_argument(
        "--target", action="append", default=[], metavar="TARGET",
        help="where the workflow is, to check the value; default: `targets` of [tool.durable]",
    )  # fmt: skip


def _cancel(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = _command(commands, "cancel", "running", "ask for a run to be cancelled")
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("--reason", metavar="TEXT", default="", help="for people")
    parser.add_argument("--wait", action="store_true", help="until the run is over")
    parser.add_argument(
        "--timeout", metavar="DURATION", help="with --wait: 30, 1h30m; default: for ever"
    )


def _sweep(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = _command(
        commands, "sweep", "showing", "hand the runs of dead workers to the live; executes nothing"
    )
    parser.add_argument("--queues", help="separated by commas; default: all")


def _workers(commands: argparse._SubParsersAction[_Parser]) -> None:
    _command(commands, "workers", "showing", "list the workers")


def _replay(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = _command(
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


def _export(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = _command(commands, "export", "replaying", "write a run into one readable file")
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("file", metavar="FILE", help="- for standard output")


def _import(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = _command(commands, "import", "replaying", "put an exported run into this store")
    parser.add_argument("file", metavar="FILE")


def _demo(commands: argparse._SubParsersAction[_Parser]) -> None:
    _command(commands, "demo", "demo", "two workers, one is killed, the other finishes its run")


def _leases(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = _command(commands, "leases", "leasing", "who holds leases and locks; free them")
    parser.add_argument("verb", nargs="?", default="list", choices=("list", "release"))
    parser.add_argument("key", metavar="KEY", nargs="?", help="KEY, lease:KEY or lock:KEY")
    parser.add_argument(
        "--force", action="store_true",
        help="also one that is held: its holder is fenced, or the run asked to cancel",
    )  # fmt: skip


def _queues(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = _command(commands, "queues", "queueing", "how long the queues are; pause and resume")
    parser.add_argument("verb", nargs="?", default="list", choices=("list", "pause", "resume"))
    parser.add_argument("name", metavar="QUEUE", nargs="?", help="to pause or resume")
    parser.add_argument("--workflow", metavar="NAME", help="all runs of it, in whatever queue")


def _schedules(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = _command(
        commands, "schedules", "scheduling", "what runs by itself: list and change it"
    )
    parser.set_defaults(verb="list")
    verbs = parser.add_subparsers(metavar="VERB")

    def verb(name: str, said: str) -> _Parser:
        added = verbs.add_parser(name, help=said, description=said[0].upper() + said[1:] + ".")
        _common(added, store=argparse.SUPPRESS, as_json=argparse.SUPPRESS)
        added.set_defaults(verb=name)
        if name != "list":
            added.add_argument("name", metavar="NAME")
        return added

    verb("list", "all schedules, with their next tick")
    verb("show", "one schedule, with its next ticks and counts")
    _schedule_to_create(verb("create", "create a schedule, or change the one of that name"))
    verb("pause", "start no further tick")
    verb("resume", "go on with the next tick")
    verb("trigger", "start a run of it now")
    backfill = verb("backfill", "start the runs of past ticks that have none")
    backfill.add_argument("start", metavar="FROM", help="2026-11-29, 2026-11-29T02:00+01:00")
    backfill.add_argument("end", metavar="TO", help="the same; the last moment whose tick counts")
    backfill.add_argument(
        "--limit", type=int, default=1000, help="refuse more ticks than that; default: 1000"
    )
    verb("remove", "remove a schedule; its runs stay")


def _schedule_to_create(parser: _Parser) -> None:
    _starting(parser)
    when = parser.add_mutually_exclusive_group(required=True)
    when.add_argument("--cron", metavar="EXPRESSION", help="5 fields: '0 2 * * *'")
    when.add_argument("--every", metavar="DURATION", help="15m, 1h30m")
    parser.add_argument("--tz", default="UTC", help="of --cron: Europe/Rome; default: UTC")
    parser.add_argument(
        "--catch-up", default="latest", metavar="POLICY",
        help="of missed ticks: skip, latest (default), all, or how many of the last",
    )  # fmt: skip
    parser.add_argument(
        "--overlap", default="skip", choices=("skip", "queue", "cancel-old", "allow"),
        help="while the run before is not over; default: skip",
    )  # fmt: skip
    parser.add_argument("--jitter", default="0s", metavar="DURATION", help="spreads the starts")


def _doctor(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = _command(commands, "doctor", "doctoring", "try whether the store can be trusted")
    _url(parser)
    parser.add_argument(
        "--runs", action="store_true", help="also whether hints match what runs record; walks all"
    )
    parser.add_argument("--repair", action="store_true", help="the same, and puts it right")


def _init(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = _command(
        commands, "init", "doctoring", "make or set up a bucket (gs://) or a file, then try it"
    )
    _url(parser)
    parser.add_argument("--location", default="", help="of a new bucket; default: US")
    parser.add_argument("--project", default="", help="of a new bucket; default: the credentials'")


def _retry(commands: argparse._SubParsersAction[_Parser]) -> None:
    _choosing(_command(commands, "retry", "repairing", "let failed runs go on from what failed"))


def _restart(commands: argparse._SubParsersAction[_Parser]) -> None:
    _choosing(_command(commands, "restart", "repairing", "run again from the beginning"))


def _purge(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = _command(commands, "purge", "repairing", "remove all that is recorded of runs")
    _choosing(parser)
    parser.add_argument("--force", action="store_true", help="also of runs that are not over")


def _choosing(parser: _Parser) -> None:
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
    _reason(parser)


def _reason(parser: _Parser) -> None:
    parser.add_argument("--reason", metavar="TEXT", default="", help="recorded, for people")


def _fork(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = _command(
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
    _reason(parser)


def _skip(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = _command(
        commands, "skip", "repairing", "say what a call returns that cannot get there by itself"
    )
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("step", metavar="STEP", help="the path of the call, as `show` has it")
    parser.add_argument("--with", required=True, metavar="JSON", help="what it returns")
    _reason(parser)


def _release(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = _command(commands, "release", "repairing", "take a run from the worker that holds it")
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("--force", action="store_true", help="fence it, even if it is alive")


def _gc(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = _command(commands, "gc", "repairing", "purge the runs that ended long ago")
    parser.add_argument("--older-than", required=True, metavar="DURATION", help="30d, 12h")
    parser.add_argument("--dry-run", action="store_true", help="only count them")


def _lint(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = _command(
        commands, "lint", "linting", "find what in workflows would not be the same on a replay"
    )
    parser.add_argument("paths", metavar="PATH", nargs="+", help="Python files, or folders of them")


def _url(parser: _Parser) -> None:
    parser.add_argument("url", metavar="URL", nargs="?", help="the store; the same as --store")
