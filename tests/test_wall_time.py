"""The rule that no test waits for time is enforced: each way to wait is noticed, facts are not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from tests.runtime import clocks
from tests.wall_time import watching

BRIEF = 0.002  # seconds
ROOT = Path(__file__).parent


def in_thread(work: Callable[[], object], name: str = "some thread") -> None:
    thread = threading.Thread(target=work, name=name)
    thread.start()
    thread.join()


def sleep() -> None:
    time.sleep(BRIEF)


def loop(backend: str) -> None:
    anyio.run(anyio.sleep, BRIEF, backend=backend)


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
    with watching(longest=BRIEF / 2) as watch:
        way()
        (told,) = watch.take()

    assert "waited for 0.00 s" in told
    assert "test_wall_time.py" in told


@pytest.mark.parametrize("backend", clocks.BACKENDS)
def test_a_wait_for_a_fact_is_not(backend: str) -> None:
    """However long its limit is; nor is one on a virtual clock, nor what goes on beside a test."""

    async def fact() -> None:
        with anyio.fail_after(60):
            await anyio.to_thread.run_sync(int)

    async def hours() -> None:
        await anyio.sleep(3600)

    with watching(longest=0) as watch:
        told = threading.Event()
        threading.Thread(target=told.set).start()
        assert told.wait(60)
        anyio.run(fact, backend=backend)
        clocks.run(backend, hours)
        in_thread(sleep, "lease of w1")

        assert watch.take() == []


def test_no_test_sleeps_in_its_source() -> None:
    """What tests run in other processes is not watched: there is no word of it in their text.

    The crash harness lets real leases run out; it is no test.
    """
    allowed = {"facts.py", "wall_time.py", "test_wall_time.py"}
    found = [
        str(file.relative_to(ROOT))
        for file in ROOT.rglob("*.py")
        if "time.sleep(" in file.read_text()
        and file.name not in allowed
        and file.parent.name != "crash"
    ]

    assert found == []
