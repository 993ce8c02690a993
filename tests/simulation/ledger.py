"""What a long simulation has done so far: said once a minute, and kept, so that it can go on.

The file has one line of JSON for each finished chunk of cases, below a first line that says what
was asked for and of which code. Cases are in the same order each time, so a number names a chunk.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import durable
from tests.simulation.checker import Violation
from tests.simulation.judging import Case, Tally

PERIOD = 60.0  # seconds from one line of progress to the next


class Ledger:
    """See the module's docstring.

    Args:
        path: where it is kept; None keeps nothing.
        asked: what makes chunks of one number the same cases.
        total: of all cases, if that is known.

    Raises:
        SystemExit: the file is of other code, or of other cases.
    """

    def __init__(self, path: Path | None, asked: str, total: int | None) -> None:
        self.sum = Tally()
        self._path = path
        self._total = total
        self._done: set[int] = set()
        self._told_at = time.monotonic()
        if path is None:
            return
        header = {"asked": asked, "code": _code()}
        if path.exists():
            self._read(path, header)
        else:
            self._write(header)

    def has(self, chunk: int) -> bool:
        """Whether it was done before."""
        return chunk in self._done

    def add(self, chunk: int, tally: Tally) -> None:
        """A chunk is done."""
        self.sum.add(tally)
        self._write({"chunk": chunk, "tally": _plain(tally)})
        if time.monotonic() - self._told_at > PERIOD:
            self._told_at = time.monotonic()
            of = "" if self._total is None else f" of {self._total}"
            print(f"{time.strftime('%H:%M:%S')}  {self.sum.cases}{of}  {self.sum.summary()}",
                  flush=True)  # fmt: skip

    def _read(self, path: Path, header: dict[str, str]) -> None:
        first, *lines = path.read_text().splitlines()
        if json.loads(first) != header:
            raise SystemExit(f"{path} is of other code or other cases: name another file")
        for line in lines:
            said = json.loads(line)
            self._done.add(said["chunk"])
            self.sum.add(_tally(said["tally"]))

    def _write(self, said: dict[str, Any]) -> None:
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(said) + "\n")


def _plain(tally: Tally) -> dict[str, Any]:
    return vars(tally) | {"failures": [(vars(case), wrong) for case, wrong in tally.failures]}


def _tally(said: dict[str, Any]) -> Tally:
    failures = [
        (Case(**case), [Violation(*violation) for violation in wrong])
        for case, wrong in said.pop("failures")
    ]
    counters = {name: Counter(said.pop(name)) for name in ("counted", "states")}
    return Tally(**said, **counters, failures=failures)


def _code() -> str:
    """A hash of all that decides what a case comes to."""
    digest = hashlib.blake2b(digest_size=8)
    for root in (Path(durable.__file__).parent, Path(__file__).parents[1]):
        for file in sorted(root.rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()
