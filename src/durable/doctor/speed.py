"""How long calls take, and the store's clock."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from functools import partial

from durable.doctor.findings import Finding, Spread
from durable.doctor.probe import Probe

SAMPLES = 20
CLOCK_NOTED = 2.0  # seconds that two clocks may differ before it is worth a word


async def time_calls(probe: Probe) -> dict[str, Spread]:
    """Create, get and list, one call after the other.

    Raises:
        StoreError: the store does not answer any more, or refuses what it allowed before.
    """
    store = probe.store
    names = [probe.name(f"latency/{number}") for number in range(SAMPLES)]
    calls: dict[str, list[Callable[[], Awaitable[object]]]] = {
        "create": [partial(store.create, n, b"{}", nonce=store.system.token()) for n in names],
        "get": [partial(store.read, name) for name in names],
        "list": [partial(store.page, probe.folder) for _ in names],
    }
    return {verb: spread([await _timed(probe, call) for call in calls[verb]]) for verb in calls}


async def _timed(probe: Probe, call: Callable[[], Awaitable[object]]) -> float:
    boot = probe.store.system.boot
    began = boot()
    await call()
    return boot() - began


def spread(seconds: list[float]) -> Spread:
    """The median and the 99th percentile; of fewer than a hundred samples that is the slowest."""
    ordered = sorted(seconds)

    def at(share: float) -> float:
        return round(ordered[math.ceil(share * len(ordered)) - 1] * 1000, 3)

    return Spread(at(0.5), at(0.99))


def latency_finding(latency: dict[str, Spread]) -> Finding:
    """The figures in one line."""
    shown = (f"{verb} {one.p50_ms:.1f} / {one.p99_ms:.1f} ms" for verb, one in latency.items())
    return Finding("latency", "ok", f"{', '.join(shown)} (p50 / p99 of {SAMPLES})")


def clock_finding(offset: float) -> Finding:
    """The store's clock against this machine's."""
    if abs(offset) < CLOCK_NOTED:
        return Finding("clock", "ok", f"{abs(offset):.2f} s from this machine's")
    side = "ahead of" if offset > 0 else "behind"
    found = f"{abs(offset):,.1f} s {side} this machine's; leases go by the store's alone"
    return Finding("clock", "note", found, "Set this machine's clock, so that logs agree.")
