"""The commands `doctor` and `init` in this process, in an empty folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from durable.cli import main
from durable.testing.gcs import Handle, Service, serving


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


Cli = Callable[..., Done]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> Done:
        code = main(words)
        said = capsys.readouterr()
        return Done(code, said.out, said.err)

    return call


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Handle]:
    """A server without buckets, which gs:// URLs lead to."""
    with serving(Service()) as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
        yield server
