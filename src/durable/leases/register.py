"""All leases: looked at, listed, attached to, written into from outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio

from durable import catalog
from durable.catalog import Catalog, Contention
from durable.errors import LeaseTaken, NotFound, UsageError
from durable.leases import entries
from durable.leases.entries import LeaseEntry
from durable.leases.holder import LeaseHolder
from durable.leases.lease import Lease
from durable.protocol import primitives, records
from durable.protocol.primitives import KEEP, LEASES, LeaseRecord
from durable.store import Store, Stored, Written

# When others write into a lease, counted from when it may change again, as parts of the pace of
# writes: before its holder does so again, and after a holder that had to make way.
AFTER_HOLDER = (0.0, 0.15)
AFTER_OTHERS = (0.5, 1.0)


class Leases(Catalog[LeaseEntry]):
    """All leases of a store.

    Args:
        store: where they are.
        holder: what keeps those that are attached to.
    """

    def __init__(self, store: Store, holder: LeaseHolder) -> None:
        boot = store.backend.boot
        super().__init__(
            store, LEASES, lambda stored, now: entries.of_stored(stored, now, boot=boot)
        )
        self._holder = holder

    async def attach(self, key: str, token: str, *, renew: bool = True) -> Lease:
        """Go on holding a lease that another process has acquired, under the same epoch.

        Args:
            key: of the lease.
            token: what `Lease.hand_over` gave there.
            renew: keep renewing it in the background; else only its own calls renew.

        Raises:
            LeaseLost: it is not held with this token (any more).
            StoreUnavailable: the store does not answer.
            UsageError: the client is closed.
        """
        return await self._holder.attach(key, token, renew=renew)

    async def release(self, key: str, *, force: bool = False) -> None:
        """Free a lease that somebody else holds.

        Args:
            key: of the lease.
            force: also if its holder is alive, which is fenced by that: it learns of the loss
                with its next write, at the latest when it renews.

        Raises:
            LeaseTaken: its holder is alive, and `force` is not given.
            NotFound: there is no such lease.
            StoreUnavailable: no answer; or others always were quicker.
        """
        name = primitives.object_name(LEASES, key)
        contention = Contention(self._store, name)
        while (stored := await self._store.read(name)) is not None:
            entry = entries.of_stored(stored, self._store.now(), boot=self._store.backend.boot)
            if entry.status == "free":
                return
            if entry.status == "held" and not force:
                raise LeaseTaken(
                    f"lease {key!r} is held by {entry.label} ({entry.holder}), which is alive",
                    hint=f"stop it, or fence it: `durable leases release lease:{key} --force`",
                )
            current = catalog.decode_record(LeaseRecord, stored)
            await self._turn(stored, current)
            record = primitives.revoked(current, nonce=self._store.system.token())
            answer = await catalog.put(
                self._store, name, stored, records.encode(record), nonce=record.nonce
            )
            if isinstance(answer, Written):
                return
            await contention.lost()
        raise NotFound(f"there is no lease {key!r}", hint="`durable leases` lists them")

    async def cooperative_write(self, key: str, fn: Callable[[Any], Any]) -> Any:
        """Write into the state of a lease that somebody else may hold, such as a request to stop.

        It takes nothing from the holder and renews nothing. The holder finds it with its next
        write, at the latest when it renews.

        Args:
            key: of the lease; if it never was held, its first holder finds the state.
            fn: takes the state (None if there is none) and returns the new one, a dict, or `KEEP`
                to leave it as it is. It is called again whenever somebody else was quicker, so
                it must do nothing else. What it raises is raised here.

        Returns:
            The state that then stands.

        Raises:
            UsageError: the state is not a dict, so that holder and others could not both write.
            InvalidArguments: it cannot be stored.
            StoreUnavailable: no answer, and it may have been written; or others always were
                quicker.
        """
        name = primitives.object_name(LEASES, key)
        contention = Contention(self._store, name)
        while True:
            stored = await self._store.read(name)
            current = None if stored is None else catalog.decode_record(LeaseRecord, stored)
            state = entries.state_of(current)
            new = fn(state)
            if new is KEEP:
                return state
            _check_mergeable(key, state, new)
            await self._turn(stored, current)
            record = self._next(key, stored, current, new)
            answer = await catalog.put(
                self._store, name, stored, records.encode(record), nonce=record.nonce
            )
            if isinstance(answer, Written):
                return entries.state_of(record)
            await contention.lost()

    async def _turn(self, stored: Stored | None, current: LeaseRecord | None) -> None:
        """Wait until the object may change again, and for whose turn it is.

        A holder that has just written leaves the first moments after that to others. Where others
        have just written it comes first: it must not lose the lease to them.
        """
        if stored is None or not (left := catalog.until_free(self._store, stored)):
            return
        begin, end = AFTER_OTHERS if current and current.renewed else AFTER_HOLDER
        later = self._store.system.uniform(begin, end) * self._store.pace.write
        await anyio.sleep(left + later)

    def _next(
        self, key: str, stored: Stored | None, current: LeaseRecord | None, state: object
    ) -> LeaseRecord:
        return primitives.written_by_others(
            key, current, updated=0.0 if stored is None else stored.updated,
            nonce=self._store.system.token(),
            state=primitives.encode_value(state, what=f"the state of lease {key!r}"),
        )  # fmt: skip


def _check_mergeable(key: str, *states: object) -> None:
    for state in states:
        if state is not None and type(state) is not dict:
            raise UsageError(
                f"the state of lease {key!r} that its holder and others write is a dict, not "
                f"{type(state).__name__}",
                hint="write keys of a dict: each is merged on its own",
            )
