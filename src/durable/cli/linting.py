"""`lint`: what in workflow functions would not be the same on a replay."""

from __future__ import annotations

import argparse
from pathlib import Path

from durable.cli import exits, output
from durable.linting import check_file, python_files


def lint(arguments: argparse.Namespace) -> int:
    """Check the files; code 1 if anything is found."""
    files = python_files([Path(path) for path in arguments.paths])
    found = [finding for file in files for finding in check_file(file)]
    if arguments.json:
        output.document({"files": len(files), "findings": found})
    else:
        for one in found:
            print(f"{one.file}:{one.line}:{one.column}: {one.code} {one.message}: {one.instead}")
        print(f"{len(found)} found in {len(files)} files")
    return exits.FAILED if found else exits.DONE
