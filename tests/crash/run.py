"""Kill workers at random moments and check that nothing is lost, changed or done twice.

    python tests/crash/run.py --kills 50 [--store http] [--seed S] [--minutes M]

The last line counts what happened; the exit code is 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path


def main() -> int:
    import anyio

    from tests.crash.checker import check
    from tests.crash.evidence import read
    from tests.crash.harness import Harness
    from tests.crash.places import place_of
    from tests.crash.report import explain

    args = _arguments()
    folder = Path(tempfile.mkdtemp(prefix="durable-crash-"))
    print(f"crash: seed {args.seed}, evidence in {folder}", flush=True)
    place = place_of(args.store, folder, args.seed)
    harness = Harness(folder, place, kills=args.kills, seed=args.seed, minutes=args.minutes)
    try:
        anyio.run(harness.run)
    finally:
        place.close()
        evidence = read(folder)
        verdict = check(evidence)
        print(explain(evidence, verdict, folder), end="")
        print(verdict.summary(), flush=True)
    if verdict.violations:
        return 1
    if not args.keep:
        shutil.rmtree(folder)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50, help="processes killed, at least")
    parser.add_argument(
        "--store", choices=["sqlite", "http"], default="sqlite",
        help="a file, or a bucket behind a server that fails too: restarts, 5xx, lost replies",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--minutes", type=float, default=0.0, help="faults go on at least so long")
    parser.add_argument("--keep", action="store_true", help="keep the evidence of a good run")
    return parser.parse_args()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    sys.exit(main())
