"""The store's time, from its answers."""

from __future__ import annotations

import pytest

from durable.store.gcs import GcsBackend
from durable.store.gcs.clock import WINDOW, StoreClock
from durable.system import System
from durable.testing.gcs import Fault, Handle

NOON = 1_795_953_600.0  # 2026-11-29T12:00:00Z
DATE = "Sun, 29 Nov 2026 12:00:0{} GMT"


class Boot:
    """A boot clock to be moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self.clock = StoreClock(System(boot=lambda: self.now, wall=lambda: 77.0))


@pytest.fixture
def boot() -> Boot:
    return Boot()


def test_the_boot_clock_carries_it_on(boot: Boot) -> None:
    """From one answer on, time passes as it does here."""
    boot.clock.saw(NOON + 0.123, 100.0)
    boot.now = 107.5

    assert boot.clock.now() == NOON + 7.623


def test_of_several_answers_the_latest_time_counts(boot: Boot) -> None:
    """An answer that was long under way, or is rounded down, does not set the clock back."""
    boot.clock.saw(NOON + 0.9, 100.0)
    boot.now = 101.0
    boot.clock.saw(NOON + 0.5, 101.0)
    boot.clock.saw_date(DATE.format(1), 101.0)

    assert boot.clock.now() == NOON + 1.9


def test_dates_come_within_a_second_and_closer_with_each(boot: Boot) -> None:
    """A `Date` is rounded down; the one that came right after its second has the most to say."""
    boot.clock.saw_date(DATE.format(1), 101.8)
    boot.now = 101.8
    late = boot.clock.now()
    boot.clock.saw_date(DATE.format(2), 102.1)
    boot.now = 102.1

    assert late == NOON + 1
    assert boot.clock.now() == NOON + 2


def test_a_second_answer_of_the_same_second_changes_nothing(boot: Boot) -> None:
    """Neither does a header that is no date, or none."""
    boot.clock.saw_date(DATE.format(1), 101.0)
    boot.now = 101.9
    far = "Mon, 30 Nov 2026 17:00:00 +99999999999999"
    for date in (DATE.format(1), "yesterday", far, None):
        boot.clock.saw_date(date, 101.9)

    assert boot.clock.now() == pytest.approx(NOON + 1.9, abs=0.001)


def test_a_host_whose_clock_is_ahead_is_forgotten(boot: Boot) -> None:
    """Two windows later only what was said since counts."""
    boot.clock.saw(NOON + 2.0, 100.0)
    for step in range(1, 5):
        boot.now = 100.0 + step * WINDOW * 0.75
        boot.clock.saw(NOON + boot.now - 100.0, boot.now)

    assert boot.clock.now() == NOON + boot.now - 100.0


def test_within_a_window_and_the_next_it_never_goes_back(boot: Boot) -> None:
    """Forgetting starts only where every newer answer has had its say."""
    boot.clock.saw(NOON, 100.0)
    times = []
    for step in range(30):
        boot.now = 100.0 + step * 2
        boot.clock.saw(NOON + boot.now - 100.0 - 0.2 * (step % 3), boot.now)
        times.append(boot.clock.now())

    assert times == sorted(times)


def test_a_drifting_boot_clock_does_not_run_away(boot: Boot) -> None:
    """Where it runs 1 % fast, the store's time is never more than that of two windows ahead."""
    ahead = []
    for step in range(200):
        real = step * 5.0
        boot.now = 100.0 + real * 1.01
        boot.clock.saw(NOON + real, boot.now)
        ahead.append(boot.clock.now() - (NOON + real))

    assert min(ahead) >= 0
    assert max(ahead) <= 2 * WINDOW * 0.01 + 0.01


def test_after_a_long_silence_the_next_answer_alone_counts(boot: Boot) -> None:
    """A machine that slept for a day believes what it is told now."""
    boot.clock.saw(NOON, 100.0)
    boot.now = 100.0 + 86_400
    boot.clock.saw(NOON + 86_000, boot.now)

    assert boot.clock.now() == NOON + 86_000


def test_before_the_first_answer_it_is_the_wall_clock(boot: Boot) -> None:
    """Nothing of the store has been seen that it could be compared with."""
    assert boot.clock.now() == 77.0


@pytest.mark.anyio
async def test_reads_tell_the_time_too(backend: GcsBackend, server: Handle) -> None:
    """Even a read of nothing has a `Date`: at most a second, and never ahead."""
    await backend.read("a")
    now = server.service.now()

    assert now - 1.1 <= backend.now() <= server.service.now()


@pytest.mark.anyio
async def test_writes_tell_it_to_the_millisecond(backend: GcsBackend, server: Handle) -> None:
    """After a write the store's time is not before it, and not ahead."""
    written = await backend.create("a", b"", {}, True)
    assert written is not None

    assert written.updated <= backend.now() <= server.service.now()


@pytest.mark.anyio
async def test_a_skewed_answer_moves_it_by_no_more(backend: GcsBackend, server: Handle) -> None:
    """Front ends may disagree; what one is ahead stays within the margins of leases."""
    server.service.faults.add(Fault("skewed", seconds=1.5, nth=1))
    await backend.create("a", b"", {}, True)
    await backend.create("b", b"", {}, True)

    assert backend.now() - server.service.now() <= 1.5
