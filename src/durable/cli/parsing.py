"""The command line's grammar. Each command's module is imported when it is called for."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from durable.cli.grammar import coordinating, looking, repairing, running, setting_up
from durable.cli.grammar.words import Parser, common_flags


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The arguments as a namespace, with `words` and the `command` to call.

    Raises:
        UsageError: they do not fit the grammar.
    """
    arguments = grammar().parse_args(words)
    arguments.words = list(words)
    return arguments


def grammar() -> Parser:
    """Every command with its arguments."""
    parser = Parser(prog="durable", description="Durable Python workflows.")
    common_flags(parser, store=None, as_json=False)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for add in (
        running.run,
        running.start,
        running.worker,
        looking.list_,
        looking.show,
        running.result,
        looking.tail,
        running.send,
        running.cancel,
        repairing.sweep,
        looking.workers,
        coordinating.schedules,
        coordinating.queues,
        coordinating.leases,
        looking.replay,
        looking.export,
        looking.import_,
        running.demo,
        setting_up.doctor,
        setting_up.init,
        repairing.retry,
        repairing.restart,
        repairing.fork,
        repairing.skip,
        repairing.release,
        repairing.purge,
        repairing.gc,
        looking.lint,
    ):
        add(commands)
    return parser
