"""What runs share: schedules, queues, leases and locks."""

from __future__ import annotations

import argparse

from durable.cli.grammar.words import Commands, Parser, command, common_flags, what_to_start


def schedules(commands: Commands) -> None:
    parser = command(commands, "schedules", "scheduling", "what runs by itself: list and change it")
    parser.set_defaults(verb="list")
    verbs = parser.add_subparsers(metavar="VERB")

    def verb(name: str, said: str) -> Parser:
        added = verbs.add_parser(name, help=said, description=said[0].upper() + said[1:] + ".")
        common_flags(added, store=argparse.SUPPRESS, as_json=argparse.SUPPRESS)
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


def _schedule_to_create(parser: Parser) -> None:
    what_to_start(parser)
    when = parser.add_mutually_exclusive_group(required=True)
    when.add_argument("--cron", metavar="EXPRESSION", help="5 fields: '0 2 * * *'")
    when.add_argument("--every", metavar="DURATION", help="15m, 1h30m")
    parser.add_argument("--tz", help="of --cron: Europe/Rome; default: UTC")
    parser.add_argument(
        "--catch-up", default="latest", metavar="POLICY",
        help="of missed ticks: skip, latest (default), all, or how many of the last",
    )  # fmt: skip
    parser.add_argument(
        "--overlap", default="skip", choices=("skip", "queue", "cancel-old", "allow"),
        help="while the run before is not over; default: skip",
    )  # fmt: skip
    parser.add_argument("--jitter", default="0s", metavar="DURATION", help="spreads the starts")


def queues(commands: Commands) -> None:
    parser = command(commands, "queues", "queueing", "how long the queues are; pause and resume")
    parser.add_argument("verb", nargs="?", default="list", choices=("list", "pause", "resume"))
    parser.add_argument("name", metavar="QUEUE", nargs="?", help="to pause or resume")
    parser.add_argument("--workflow", metavar="NAME", help="all runs of it, in whatever queue")


def leases(commands: Commands) -> None:
    parser = command(commands, "leases", "leasing", "who holds leases and locks; free them")
    parser.add_argument("verb", nargs="?", default="list", choices=("list", "release"))
    parser.add_argument("key", metavar="KEY", nargs="?", help="KEY, lease:KEY or lock:KEY")
    parser.add_argument(
        "--force", action="store_true",
        help="also one that is held: its holder is fenced, or the run asked to cancel",
    )  # fmt: skip
