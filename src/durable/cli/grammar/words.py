"""What every command's grammar is made of, and the arguments that several take."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

from durable.errors import UsageError

STATUSES = ("waiting", "running", "parked", "needs-attention", "completed", "failed", "cancelled")

Command = Callable[[argparse.Namespace], int]


class Parser(argparse.ArgumentParser):
    """Reports what is wrong as every other error is reported.

    Flags are not abbreviated: a worker hands its command line on to its processes, without
    `--processes`, and would start more and more of them if the flag had other forms.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}", hint=f"`{self.prog} --help` tells more")


Commands: TypeAlias = "argparse._SubParsersAction[Parser]"  # no generic at run time


def common_flags(parser: argparse.ArgumentParser, *, store: object, as_json: object) -> None:
    """What may stand with every command."""
    parser.add_argument(
        "--store", metavar="URL", default=store,
        help="where the runs are; default: DURABLE_STORE, [tool.durable], .durable/durable.db",
    )  # fmt: skip
    parser.add_argument(
        "--json", action="store_true", default=as_json,
        help="one JSON document on standard output, errors as one on standard error",
    )  # fmt: skip


def command(commands: Commands, name: str, where: str, said: str) -> Parser:
    """Add a command, which the function of its name in `durable.cli.<where>` carries out."""
    parser = commands.add_parser(name, help=said, description=said[0].upper() + said[1:] + ".")
    # Both flags may stand before the command or behind it; left out, they override nothing.
    common_flags(parser, store=argparse.SUPPRESS, as_json=argparse.SUPPRESS)

    def call(arguments: argparse.Namespace) -> int:
        module = importlib.import_module(f"durable.cli.{where}")
        # A command may be called as a keyword of Python is.
        carry_out: Command = getattr(module, name, None) or getattr(module, f"{name}_")
        return carry_out(arguments)

    parser.set_defaults(command=call)
    return parser


def what_to_start(parser: Parser) -> None:
    """A workflow, its input, and options for the run."""
    parser.add_argument("target", metavar="TARGET", help="file.py, file.py:name, module[:name]")
    parser.add_argument(
        "--input", metavar="JSON",
        help="an object (keyword arguments), an array (positional), @file, or - for stdin",
    )  # fmt: skip
    parser.add_argument("--queue", help="where workers look for it")
    parser.add_argument(
        "--priority", type=int, metavar="N",
        help="among those that wait in a limited queue; lower goes first; default: 0",
    )  # fmt: skip
    parser.add_argument(
        "--run-timeout", metavar="DURATION",
        help="how long after its start a run fails unless it is over: 30, 1h30m",
    )  # fmt: skip
    parser.add_argument(
        "--tag", action="append", default=[], metavar="KEY=VALUE", help="shown in lists"
    )


def reason(parser: Parser) -> None:
    """Why somebody does it."""
    parser.add_argument("--reason", metavar="TEXT", default="", help="recorded, for people")
