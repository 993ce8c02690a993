"""What is going on in the store at present: who serves what, and what a month of it costs."""

from __future__ import annotations

from collections.abc import Collection

from durable.client.listing import label_of, places_in_line, queue_of, that_are_over, unserved
from durable.client.reading import Workers
from durable.doctor.findings import Finding
from durable.protocol import moments, names
from durable.store import Store

# Class A operations of Standard storage in one region, US dollars for 1,000 of them:
# cloud.google.com/storage/pricing, read 2026-11.
CLASS_A_DOLLARS = 0.005 / 1000
# Measured by `nox -s bench -- cost`: a worker a minute, idle or with runs, at a ttl of 20 s; what a
# run costs beside its steps.
IDLE_A_MINUTE = 4.3
HOLDING_A_MINUTE = 13.3
RUN_A = 6
MINUTES_A_MONTH = 30 * 24 * 60
SAMPLE = 20  # runs, the latest, whose calls are counted
DAY = 86_400.0
SHOWN = 3  # runs that are named as examples


async def look_at_load(store: Store, *, billed: bool) -> list[Finding]:
    """Runs that nobody serves and why; for a bucket, the month's bill at this rate."""
    workers = await Workers.read(store)
    reasons: dict[str, list[str]] = {}
    holders: set[str] = set()
    left: dict[tuple[str, str], str] = {}  # runs with their instances, and why: holders are gone
    live = 0
    for place in await places_in_line(store):
        live += 1
        if why := unserved(workers, place):
            reasons.setdefault(why, []).append(place.pending.run)
    async for stored in store.list(names.LIVE):
        live += 1
        holders.add(stored.meta.get("holder", ""))
        status = workers.status(
            stored.meta.get("workflow", ""), queue_of(stored.name), stored.meta.get("holder", ""),
            label=label_of(stored), pin=stored.meta.get("pin", ""),
        )  # fmt: skip
        if status == "waiting" and status.reason:
            run = names.marker_run(stored.name) or stored.name
            if stored.meta.get("holder", ""):
                left[run, stored.meta.get("instance", "")] = status.reason
            else:
                reasons.setdefault(status.reason, []).append(run)
    over = await that_are_over(store, left)
    live -= len(over)
    for (run, _), why in (found for found in left.items() if found[0] not in over):
        reasons.setdefault(why, []).append(run)
    found = [
        Finding("unserved", "warning", f"{_wait(len(runs))}: {why} ({_some(runs)})")
        for why, runs in sorted(reasons.items(), key=lambda found: -len(found[1]))
    ]
    if not found:
        found = [Finding("unserved", "ok", f"{live} live runs; none waits for want of a worker")]
    if billed:
        found.append(await _month(store, workers, holders))
    return found


def _wait(runs: int) -> str:
    return "1 run waits" if runs == 1 else f"{runs} runs wait"


def _some(runs: list[str]) -> str:
    more = ", ..." if len(runs) > SHOWN else ""
    return ", ".join(runs[:SHOWN]) + more


async def _month(store: Store, workers: Workers, holders: Collection[str]) -> Finding:
    """An estimate from the last day; what runs read is left out, which costs a tenth of a write.

    Args:
        holders: the workers that hold runs at the moment.
    """
    alive = [worker.id for worker in workers.found.values() if worker.state == "alive"]
    holding = sum(id in holders for id in alive)
    since = moments.stamp(store.now() - DAY)
    ended = [s.name async for s in store.list("history/") if names.last_part(s.name) > since]
    calls = [await _calls(store, name) for name in ended[-SAMPLE:]]
    steps = sum(calls) / len(calls) if calls else 0.0
    a_minute = holding * HOLDING_A_MINUTE + (len(alive) - holding) * IDLE_A_MINUTE
    runs = 30 * len(ended) * (RUN_A + steps)
    dollars = (a_minute * MINUTES_A_MONTH + runs) * CLASS_A_DOLLARS
    return Finding(
        "cost", "note",
        f"about ${dollars:,.2f} a month for operations at the rate of the last day: "
        f"{len(alive)} workers, of which {holding} hold runs, {len(ended)} runs with {steps:.0f} "
        "calls each",
    )  # fmt: skip


async def _calls(store: Store, history: str) -> int:
    run = names.last_part(history).split("Z-", 1)[-1]
    return len([s async for s in store.list(names.run_folder(run)) if "/steps/" in s.name])
