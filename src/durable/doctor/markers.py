"""Runs whose marker nobody can read, so that no worker takes them."""

from __future__ import annotations

import shlex

from durable.doctor.findings import Finding
from durable.errors import StoreRefused
from durable.protocol import names, records
from durable.store import Store

NAMED_MAX = 3  # runs that are named; `durable list` shows all


async def look_at_markers(store: Store) -> Finding:
    """Whether each run that is not over can be taken.

    Raises:
        StoreUnavailable: the store does not answer.
    """
    damaged: list[str] = []
    try:
        async for stored in store.list(names.LIVE):
            run = names.marker_run(stored.name)
            if run is not None and stored.body is not None and not records.is_marker(stored.body):
                damaged.append(run)
    except StoreRefused as e:
        return Finding("markers", "warning", f"they cannot be looked at: {e.message}", e.hint or "")
    if not damaged:
        return Finding("markers", "ok", "every run that is not over can be taken")
    some = ", ".join(repr(run) for run in damaged[:NAMED_MAX])
    more = f" and {len(damaged) - NAMED_MAX} more" if len(damaged) > NAMED_MAX else ""
    return Finding(
        "markers",
        "warning",
        f"no worker can take {some}{more}: the marker is damaged or foreign",
        f"Stop whoever runs it, then: durable retry {shlex.quote(damaged[0])}",
    )
