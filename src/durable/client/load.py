"""What is going on in the store at present: who serves what, and what a month of it costs."""

from __future__ import annotations

from durable.client.listing import label_of, queue_of
from durable.client.reading import Workers
from durable.doctor.findings import Finding
from durable.protocol import moments, names
from durable.store import Store

# Class A operations of Standard storage in one region, US dollars for 1,000 of them:
# cloud.google.com/storage/pricing, read 2026-11.
CLASS_A_DOLLARS = 0.005 / 1000
# Measured by `nox -s bench -- cost`: an idle worker a minute; what a run costs beside its steps.
IDLE_A_MINUTE = 4.3
RUN_A = 6
MINUTES_A_MONTH = 30 * 24 * 60
SAMPLE = 20  # runs, the latest, whose calls are counted
DAY = 86_400.0
SHOWN = 3  # runs that are named as examples


async def look_at_load(store: Store, *, billed: bool) -> list[Finding]:
    """Runs that nobody serves and why; for a bucket, the month's bill at this rate."""
    workers = await Workers.read(store)
    unserved: dict[str, list[str]] = {}
    live = 0
    async for stored in store.list("live/"):
        live += 1
        status = workers.status(
            stored.meta.get("workflow", ""), queue_of(stored.name), stored.meta.get("holder", ""),
            label=label_of(stored), pin=stored.meta.get("pin", ""),
        )  # fmt: skip
        if status == "waiting" and status.reason:
            unserved.setdefault(status.reason, []).append(
                names.marker_run(stored.name) or stored.name
            )
    found = [
        Finding("unserved", "warning", f"{len(runs)} runs wait: {why} ({_some(runs)})")
        for why, runs in sorted(unserved.items(), key=lambda found: -len(found[1]))
    ]
    if not found:
        found = [Finding("unserved", "ok", f"{live} live runs; none waits for want of a worker")]
    if billed:
        found.append(await _month(store, workers))
    return found


def _some(runs: list[str]) -> str:
    more = ", ..." if len(runs) > SHOWN else ""
    return ", ".join(runs[:SHOWN]) + more


async def _month(store: Store, workers: Workers) -> Finding:
    """An estimate from the last day; what runs read is left out, which costs a tenth of a write."""
    alive = sum(worker.state == "alive" for worker in workers.found.values())
    since = moments.stamp(store.now() - DAY)
    ended = [s.name async for s in store.list("history/") if names.last_part(s.name) > since]
    calls = [await _calls(store, name) for name in ended[-SAMPLE:]]
    steps = sum(calls) / len(calls) if calls else 0.0
    idle = alive * IDLE_A_MINUTE * MINUTES_A_MONTH
    busy = 30 * len(ended) * (RUN_A + steps)
    dollars = (idle + busy) * CLASS_A_DOLLARS
    return Finding(
        "cost", "note",
        f"about ${dollars:,.2f} a month for operations at the rate of the last day: {alive} "
        f"workers, {len(ended)} runs with {steps:.0f} calls each",
    )  # fmt: skip


async def _calls(store: Store, history: str) -> int:
    run = names.last_part(history).split("Z-", 1)[-1]
    return len([s async for s in store.list(names.run_folder(run)) if "/steps/" in s.name])
