"""The rule that no test waits for time is enforced: each way to wait is noticed, facts are not."""

from __future__ import annotations

import ast
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from tests import virtual_time
from tests.runtime import clocks
from tests.virtual_time import virtual_seconds
from tests.wall_time import watching

BRIEF = 0.1  # seconds; of a loop's timer a busy machine takes some before the loop waits for it
SLEEPERS = {"anyio", "asyncio", "time", "trio"}
ROOT = Path(__file__).parent


def in_thread(work: Callable[[], object], name: str = "some thread") -> None:
    thread = threading.Thread(target=work, name=name)
    thread.start()
    thread.join()


def sleep() -> None:
    time.sleep(BRIEF)  # real: it is to be noticed


def loop(backend: str) -> None:
    anyio.run(anyio.sleep, BRIEF, backend=backend)  # real: it is to be noticed


WAYS: dict[str, Callable[[], object]] = {
    "a sleep": sleep,
    "asyncio": lambda: loop("asyncio"),
    "an event": lambda: threading.Event().wait(BRIEF),
    "another thread": lambda: in_thread(sleep),
}


@pytest.mark.parametrize(
    "way",
    [
        *[pytest.param(way, id=name) for name, way in WAYS.items()],
        pytest.param(lambda: loop("trio"), id="trio", marks=pytest.mark.requires("trio")),
    ],
)
def test_a_wait_for_time_is_noticed(way: Callable[[], object]) -> None:
    """Whoever waits, and in whatever thread; the message says where."""
    with watching(longest=BRIEF / 100) as watch:
        way()
        (told,) = watch.take()

    assert re.search(r"waited for 0\.[01]\d s", told)
    assert "test_wall_time.py" in told


@pytest.mark.parametrize("backend", clocks.BACKENDS)
def test_a_wait_for_a_fact_is_not(backend: str) -> None:
    """However long its limit is; nor is one on a virtual clock, nor what goes on beside a test."""

    async def fact() -> None:
        with anyio.fail_after(60):
            await anyio.to_thread.run_sync(int)

    async def hours() -> None:
        await virtual_seconds(3600)

    with watching(longest=0) as watch:
        told = threading.Event()
        threading.Thread(target=told.set).start()
        assert told.wait(60)
        anyio.run(fact, backend=backend)
        clocks.run(backend, hours)
        in_thread(sleep, "lease of w1")
        in_thread(lambda: loop(backend), "durable.testing")  # until a child process is done, say

        assert watch.take() == []


@pytest.mark.parametrize("backend", clocks.BACKENDS)
def test_virtual_seconds_pass_on_no_real_clock(backend: str) -> None:
    """Hours of them take none; on the machine's clock there is an error, and the test is told."""
    clocks.run(backend, lambda: virtual_seconds(3600))

    async def passes() -> None:
        await virtual_seconds(5)

    with pytest.raises(AssertionError, match="5 s would pass for real"):
        anyio.run(passes, backend=backend)
    (told,) = virtual_time.refused()

    assert "test_wall_time.py" in told
    assert virtual_time.refused() == []


def test_what_sleeps_for_real_says_why() -> None:
    """Beside it, after `# real:`; what is virtual is `virtual_seconds`.

    What tests run in other processes is not watched, so this looks at their text.
    """
    found = [
        f"{file.relative_to(ROOT)}:{number}: {lines[number - 1].strip()}"
        for file in ROOT.rglob("*.py")
        for lines in [file.read_text().splitlines()]
        for number in _sleeps(file.read_text())
        if "# real: " not in lines[number - 1]
    ]

    assert found == []


def _sleeps(source: str) -> list[int]:
    """The lines that name the `sleep` of a module that has one."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if (
            isinstance(node, ast.Attribute)
            and node.attr == "sleep"
            and isinstance(node.value, ast.Name)
            and node.value.id in SLEEPERS
        )
        or (
            isinstance(node, ast.ImportFrom)
            and node.module in SLEEPERS
            and any(alias.name == "sleep" for alias in node.names)
        )
    ]


@pytest.mark.parametrize("source", ["anyio.sleep(1)", "run(time.sleep)", "from trio import sleep"])
def test_a_sleep_is_seen_in_a_source(source: str) -> None:
    """Called, handed on or imported; one of the product's own is none."""
    assert _sleeps(source) == [1]
    assert _sleeps("durable.sleep(1)\nsync.sleep(1)\nfrom durable import sleep") == []
