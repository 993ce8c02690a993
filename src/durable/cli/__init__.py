"""The `durable` command."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the command line says; returns the exit code (see `durable.cli.exits`).

    Args:
        argv: the arguments without the program's name. By default those of this process, which
            then ends here if threads of users' functions would keep it from ending.
    """
    from durable.cli import exits, output
    from durable.cli.parsing import parse

    words = list(sys.argv[1:] if argv is None else argv)
    try:
        arguments = parse(words)
        with output.alone(as_json=arguments.json):
            code: int = arguments.command(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        code = exits.reader_has_gone()
    except BaseException as e:  # noqa: BLE001  # what is no error of ours goes on up
        code = exits.report(e, as_json="--json" in words)
    if argv is None:
        exits.leave_threads(code)
    return code
