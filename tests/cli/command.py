"""The `durable` command for tests: in this process for what it says, as one for what it does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from durable.store.opening import open_store
from tests.commands import environment

FLOWS = str(Path(__file__).with_name("flows.py"))
PROGRAM = [sys.executable, "-m", "durable.cli"]


@dataclass
class Done:
    """What came of a command."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on standard output."""
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        """The error of the one JSON document on standard error."""
        return json.loads(self.err)["error"]


def durable(*words: str, folder: Path, given: str | None = None) -> Done:
    """Run the command as a process to its end."""
    done = subprocess.run(
        [*PROGRAM, *words],
        cwd=folder,
        env=environment(),
        input=given,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def begin(*words: str, folder: Path) -> subprocess.Popen[str]:
    """Start the command as a process; its output is read line by line."""
    return subprocess.Popen(
        [*PROGRAM, *words],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def until(process: subprocess.Popen[str], line: str, *, stream: str = "stdout") -> list[str]:
    """Read a stream of the process up to this line (or a line that ends so)."""
    seen = []
    for read in _lines(process, stream):
        seen.append(read)
        if read.endswith(line):
            return seen
    raise AssertionError(f"it ended without {line!r}: {seen} {process.communicate()}")


def _lines(process: subprocess.Popen[str], stream: str) -> Iterator[str]:
    source = getattr(process, stream)
    while read := source.readline():
        yield read.rstrip("\n")


def objects(folder: Path) -> list[str]:
    """The names of all objects in the folder's default store."""

    async def names() -> list[str]:
        store = open_store(f"sqlite:///{folder}/.durable/durable.db")
        try:
            return [stored.name async for stored in store.list("")]
        finally:
            await store.aclose()

    return anyio.run(names)


def put(folder: Path, name: str, body: bytes) -> None:
    """An object in the folder's default store that no command has made."""

    async def create() -> None:
        store = open_store(f"sqlite:///{folder}/.durable/durable.db")
        try:
            await store.create(name, body, nonce="test")
        finally:
            await store.aclose()

    anyio.run(create)
