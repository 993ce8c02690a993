"""The `durable` command, up to the moment from which it can answer for itself.

Importing the package takes a quarter of a second. Outside of it, because any module of a package
is imported after the package itself, Ctrl-C is understood in that time, too.
"""

from __future__ import annotations

import sys

INTERRUPTED = 130
_SAID = "stopped by Ctrl-C"


def main() -> int:
    """Do what the command line says; returns the exit code."""
    try:
        from durable.cli import main as command

        return command()
    except KeyboardInterrupt:
        if "--json" in sys.argv[1:]:
            said = f'{{"error":{{"code":"interrupted","message":"{_SAID}"}}}}'
        else:
            said = f"interrupted: {_SAID}"
        print(said, file=sys.stderr)
        return INTERRUPTED
