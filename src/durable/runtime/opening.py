"""How a held run is opened: what is recorded of it, then the epoch under which it goes on."""

from __future__ import annotations

from collections.abc import Callable

from durable.protocol import names, records
from durable.protocol.journal import Journal, Suspicion, seen, suspicion
from durable.protocol.records import Epoch
from durable.runtime.closing import Attention
from durable.runtime.custody import Custody
from durable.runtime.facts import CorruptFact, Facts, load
from durable.store import Refused

LIST_AGAIN = 0  # no epoch
SOLITARY_DEATHS_MAX = 5  # then its code is given up: it kills whatever resumes it


async def read_facts(custody: Custody) -> Facts:
    """What is recorded; a missing `start` is created from the marker's request.

    Raises:
        CorruptFact: an object is damaged, or `start` is missing and nobody knows what it said.
    """
    held, store = custody.held, custody.store
    request = held.marker.request
    if held.fresh and request is not None:
        held.fresh = False
        return Facts(request)
    while (facts := await load(store, custody.run)) is None:
        if request is None:
            raise CorruptFact(names.start(custody.run), "it is missing")
        body = records.encode(request)
        await store.create(names.start(custody.run), body, nonce=request.nonce)
    return facts


async def claim_epoch(
    custody: Custody,
    facts: Facts,
    journal: Journal,
    is_leaving: Callable[[], bool],
    deaths_max: int = SOLITARY_DEATHS_MAX,
) -> int | Attention | None:
    """Claim the next epoch; None: the worker was stopped while the run waited to be alone.

    `LIST_AGAIN`: somebody claimed that epoch since our list, and may have seen more than we.
    A claim on top of it with the old list would tell later owners less than is known.

    Without a claim it is the first, if nothing but `start` is there and nobody held the run
    before. An earlier holder may have begun and recorded nothing yet: it was the first.
    """
    if facts.fresh and custody.held.first:
        return 1
    alone = False
    if custody.why == "takeover":
        doubt = suspicion(journal.epochs, facts.recorded_epochs())
        deaths = _deaths_that_count(facts, journal, doubt)
        if deaths >= deaths_max:
            return _crash_loop(custody.run, deaths)
        alone = doubt.alone
        if alone and not await custody.solitude.wait_alone(custody.run, is_leaving):
            return None
    number = max(journal.epochs, default=1) + 1
    claim = Epoch(
        epoch=number, worker=custody.worker, label=custody.label, why=custody.why,
        nonce=custody.token(), time=custody.now(), seen=seen(facts.outcomes()), alone=alone,
    )  # fmt: skip
    name = names.epoch(custody.run, facts.start.instance, number)
    written = await custody.store.create(name, records.encode(claim), nonce=claim.nonce)
    return LIST_AGAIN if isinstance(written, Refused) else number


def _deaths_that_count(facts: Facts, journal: Journal, doubt: Suspicion) -> int:
    """After a cancellation was asked for, only later ones: what killed it is not begun again."""
    if facts.cancel is None:
        return doubt.solitary_deaths
    later = {n: e for n, e in journal.epochs.items() if e.time >= facts.cancel.time}
    return suspicion(later, facts.recorded_epochs()).solitary_deaths


def _crash_loop(run: str, deaths: int) -> Attention:
    return Attention(
        "crash-loop",
        f"run {run!r} was alone in {deaths} processes that died without recording anything: "
        "one of its steps probably kills its process",
        hint="look at the logs of its last workers; mend the step and deploy, or `durable retry` "
        "the run where there is more memory",
    )
