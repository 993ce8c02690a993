"""The store itself: making it, and trying whether it can be trusted."""

from __future__ import annotations

from durable.cli.grammar.words import Commands, Parser, command


def doctor(commands: Commands) -> None:
    parser = command(commands, "doctor", "doctoring", "try whether the store can be trusted")
    _url(parser)
    parser.add_argument(
        "--runs", action="store_true", help="also whether hints match what runs record; walks all"
    )
    parser.add_argument("--repair", action="store_true", help="the same, and puts it right")


def init(commands: Commands) -> None:
    parser = command(
        commands, "init", "doctoring", "make or set up a bucket (gs://) or a file, then try it"
    )
    _url(parser)
    parser.add_argument("--location", default="", help="of a new bucket; default: US")
    parser.add_argument("--project", default="", help="of a new bucket; default: the credentials'")


def _url(parser: Parser) -> None:
    parser.add_argument("url", metavar="URL", nargs="?", help="the store; the same as --store")
