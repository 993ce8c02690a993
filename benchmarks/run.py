"""Measures of durable beside its peers: `python benchmarks/run.py steps --json`.

Each measurement has a process and a folder of its own, and the rounds alternate between those
that are compared. See docs/reference/benchmarks.md for what is measured.
"""

from __future__ import annotations

import argparse
import json

import steps

BENCHMARKS = {"steps": steps}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("benchmark", choices=sorted(BENCHMARKS))
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--rounds", type=_positive, default=3, help="how often (default: 3)")
    parser.add_argument("--folder", help="where databases are put, each in a folder of its own")
    options = parser.parse_args()
    figures = BENCHMARKS[options.benchmark].measure(options.rounds, options.folder)
    if options.json:
        print(json.dumps(figures))


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


if __name__ == "__main__":
    main()
