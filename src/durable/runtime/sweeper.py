"""Dead holders: found, fenced, and their runs made takeable.

Order matters (and has a model): the marker is read first, then its holder's lease. Absent or
`dead` is takeable, judged before any age. A lease older than its own stored ttl and margin is
fenced first, by CAS to `dead`; so is one whose holder is provably gone. Only then is the marker
taken, by CAS on the generation that was read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from durable.protocol import leases, names, records
from durable.protocol.records import Lease
from durable.runtime import locks, markers
from durable.runtime.reading import decoded, with_body
from durable.store import Refused, Store, Stored
from durable.system import boot_id

log = logging.getLogger("durable")

_decoder = msgspec.json.Decoder(Lease)

Proof = Literal["boot", "lock", "ttl"]  # what told that a holder is dead

HINT_KEPT = 600.0  # seconds
DEAD_KEPT_TTLS = 10  # a dead lease is deleted when no marker has named it for so many ttl


def decode_lease(stored: Stored) -> Lease | None:
    """The record in a lease that came with its body; None if it is no lease."""
    return decoded(stored, _decoder)


@dataclass(kw_only=True)
class Sweeper:
    """Judges holders, one at a time.

    Attributes:
        runtime_folder: where this process can see lock files of workers on its host.
    """

    store: Store
    runtime_folder: Path | None

    async def takeable(self, holder: str) -> bool:
        """Whether runs of this holder may be taken; fences it if that needs doing."""
        stored = await self.store.read(names.worker(holder))
        return stored is None or await self.judge(stored)

    async def judge(self, stored: Stored) -> bool:
        """The same for a lease that was just read or listed."""
        lease = decode_lease(stored) or _unreadable(stored)
        if lease.state == "dead":
            return True
        if self._of_another_boot(lease):
            return await self._fence(stored, lease, "boot")
        if leases.expired(stored.updated, self.store.now(), lease):
            return await self._fence(stored, lease, "ttl")
        return await self.judge_by_lock(stored, lease)

    async def judge_by_lock(self, stored: Stored, lease: Lease) -> bool:
        """Fence a holder whose lock file proves that it is dead; no store call otherwise."""
        if self.runtime_folder is None or lease.state == "dead":
            return False
        proof = locks.prove_dead(self.runtime_folder, lease, boot_id())
        if proof is None:
            return False
        with proof:
            fenced = await self._fence(stored, lease, "lock")
            if fenced:
                proof.done()
        return fenced

    async def judge_orphans(self) -> bool:
        """Fence the workers of this host whose lock files say that they are dead."""
        folder = self.runtime_folder
        if folder is None:
            return False
        fenced = False
        for worker in locks.orphans(folder):
            stored = await self.store.read(names.worker(worker))
            lease = decode_lease(stored) if stored is not None else None
            if stored is None or lease is None or lease.state == "dead":
                locks.discard(folder, worker)
            else:
                fenced |= await self.judge(stored)
        return fenced

    def _of_another_boot(self, lease: Lease) -> bool:
        """An embedded store lives on one machine: leases of an earlier boot are dead."""
        return bool(self.store.backend.boot) and lease.boot != self.store.backend.boot

    async def _fence(self, stored: Stored, lease: Lease, proof: Proof) -> bool:
        mark = self.store.system.token()
        dead = msgspec.structs.replace(lease, state="dead", nonce=mark)
        written = await self.store.replace(
            stored.name,
            stored.generation,
            records.encode(dead),
            nonce=mark,
            earlier=stored.meta.get("nonce", ""),
        )
        if isinstance(written, Refused):
            # It renewed, or somebody else fenced it, or it left.
            now = decode_lease(written.current) if written.current is not None else None
            return written.current is None or (now is not None and now.state == "dead")
        log.info("worker %s (%s) is dead (%s): fenced", lease.worker, lease.label, proof)
        return True

    async def tidy(self, listed: Iterable[Stored], named: set[str]) -> None:
        """Delete dead leases that no marker has named for long."""
        for stored in listed:
            lease = decode_lease(stored) or _unreadable(stored)
            age = self.store.now() - stored.updated
            if lease.state == "dead" and lease.worker not in named:
                if age > DEAD_KEPT_TTLS * lease.ttl:
                    await self.store.delete(stored.name, stored.generation)

    async def tidy_hints(self) -> None:
        """Delete what killed workers left behind: their presence, and bells nobody answers.

        A live worker renews its presence once a minute and answers its bell within seconds.
        """
        for folder in (names.PRESENCE, names.WORKER_BELLS):
            async for stored in self.store.list(folder):
                if self.store.now() - stored.updated > HINT_KEPT:
                    await self.store.delete(stored.name, stored.generation)


async def sweep(sweeper: Sweeper, queue: str) -> list[str]:
    """One pass over a queue: runs of dead holders become unowned. Executes nothing.

    Returns:
        The ids of the runs that any worker may take now.
    """
    store, system = sweeper.store, sweeper.store.system
    verdicts: dict[str, bool] = {}
    freed: list[str] = []
    # All of them first: who has no lease now may have one, and hold what a later page shows.
    for stored in [stored async for stored in store.list(names.marker_folder(queue))]:
        run, holder = names.marker_run(stored.name), stored.meta.get("holder", "")
        if not holder or run is None:
            continue
        if holder not in verdicts:
            verdicts[holder] = await sweeper.takeable(holder)
        if verdicts[holder] and await _free(store, stored, system.token()):
            freed.append(run)
    if freed:
        await markers.ring(store, names.queue_bell(queue), system.token())
    return freed


async def _free(store: Store, stored: Stored, nonce: str) -> bool:
    full = await with_body(store, stored)
    marker = markers.decode(full) if full is not None else None
    if full is None or marker is None or full.generation != stored.generation:
        return False
    unowned = msgspec.structs.replace(marker, holder="", owner="", why="takeover", nonce=nonce)
    return await markers.replace_unowned(store, full, unowned)


def _unreadable(stored: Stored) -> Lease:
    """What to assume of an object that is no lease: its holder cannot renew any more.

    It replaced the lease, so the holder's next renewal is refused. Long after the longest time
    for which it may still trust itself its runs are free.
    """
    ttl = DEAD_KEPT_TTLS * leases.TTL_DEFAULT
    return Lease(worker=names.last_part(stored.name), ttl=ttl, margin=ttl, nonce="")
