"""A store that is not there: what looks for it says so, and makes none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command import FLOWS, Done

Cli = Callable[..., Done]

READ = [
    "list", "workers", "sweep", "leases", "leases release k", "queues", "queues resume q",
    "schedules", "schedules show s", "schedules pause s", "schedules trigger s",
    "schedules remove s", "show x", "tail x", "result x", "send x go", "cancel x",
    f"replay x --target {FLOWS}", f"replay --all --target {FLOWS}", "export x x.json",
    "retry x", "retry --failed", "restart x", "purge x", "fork x --from a.1",
    "skip x a.1 --with 1", "release x", "gc --older-than 1d",
]  # fmt: skip


@pytest.mark.parametrize("words", READ)
def test_a_store_that_is_not_there_is_an_error(cli: Cli, folder: Path, words: str) -> None:
    """A mistyped path shows no empty list: it is named, nothing is made, and the code is 5."""
    done = cli(*words.split(), "--store", "sqlite:///typo/shop.db", "--json")

    assert (done.code, done.out, done.error["code"]) == (5, "", "store_refused")
    assert f"there is no store {folder}/typo/shop.db" in done.error["message"]
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        f"start {FLOWS}:saga",
        f"schedules create s {FLOWS}:saga --every 1d",
        "queues pause q",
        f"worker {FLOWS} --until-idle",
    ],
)
def test_what_puts_something_into_it_makes_it(cli: Cli, folder: Path, words: str) -> None:
    """As the first start of a project does."""
    assert cli(*words.split(), "--store", "sqlite:///fresh/shop.db").code == 0

    assert (folder / "fresh" / "shop.db").is_file()
