"""Starting runs and executing them, and what is said to a run that goes on."""

from __future__ import annotations

from durable.cli.grammar.words import Commands, Parser, command, what_to_start


def _with_id(parser: Parser) -> None:
    parser.add_argument("--id", help="the run's id; default: a random one")
    what_to_start(parser)


def run(commands: Commands) -> None:
    _with_id(
        command(commands, "run", "running", "start a run, or go on with it, and execute it here")
    )


def start(commands: Commands) -> None:
    parser = command(commands, "start", "running", "start a run and leave it to a worker")
    _with_id(parser)
    key = parser.add_mutually_exclusive_group()
    key.add_argument(
        "--dedup-key", metavar="KEY",
        help="a run of the queue that carries it and is not over is given instead of a second one",
    )  # fmt: skip
    key.add_argument(
        "--debounce-key", metavar="KEY",
        help="it begins once no further start with this key has come for its queue's quiet time",
    )  # fmt: skip


def worker(commands: Commands) -> None:
    parser = command(commands, "worker", "working", "execute runs until stopped")
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


def result(commands: Commands) -> None:
    parser = command(commands, "result", "running", "wait for a run and print what it returned")
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("--timeout", metavar="DURATION", help="30, 1h30m; default: for ever")


def send(commands: Commands) -> None:
    parser = command(commands, "send", "sending", "send an event to a run")
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


def cancel(commands: Commands) -> None:
    parser = command(commands, "cancel", "running", "ask for a run to be cancelled")
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("--reason", metavar="TEXT", default="", help="for people")
    parser.add_argument("--wait", action="store_true", help="until the run is over")
    parser.add_argument(
        "--timeout", metavar="DURATION", help="with --wait: 30, 1h30m; default: for ever"
    )


def demo(commands: Commands) -> None:
    command(commands, "demo", "demo", "two workers, one is killed, the other finishes its run")
