"""The client's words for coordination without workflows: claims, documents, leases."""

from __future__ import annotations

import functools
import math
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import ParamSpec, TypeVar, overload

import anyio.abc

from durable import claims, documents
from durable.catalog import Catalog
from durable.claims import Claim, ClaimResult
from durable.documents import Document, Snapshot
from durable.effects import Effect
from durable.errors import UsageError
from durable.leases import Lease, LeaseHolder, Leases, Refuse, Taken
from durable.leases.holder import WAIT_DEFAULT, StateFn, Wanted
from durable.loops import io_thread
from durable.protocol import durations, texts
from durable.protocol.durations import Duration
from durable.protocol.leases import TTL_DEFAULT, Terms
from durable.protocol.primitives import CLAIMS, DOCS
from durable.store import Store
from durable.system import label as own_label

P = ParamSpec("P")
R = TypeVar("R")


class Coordination:
    """What several processes agree through, without a workflow.

    Before the client's first write, of whatever kind, the store's settings are looked at.

    Args:
        store: where it is.
        tasks: gives the open client's task group; None while it is closed.
        renew_in_thread: False keeps leases in that group, for tests on a virtual clock.
    """

    def __init__(
        self,
        store: Store,
        tasks: Callable[[], anyio.abc.TaskGroup | None],
        *,
        renew_in_thread: bool = True,
    ) -> None:
        def open_tasks() -> anyio.abc.TaskGroup:
            found = tasks()
            if found is None:
                raise UsageError(
                    "leases need an open client",
                    hint="write `async with connect() as client:`",
                )
            return found

        # Else what is written first could never be renewed, replaced or deleted.
        self.store = store.patient(store.patience, before_write=store.check)
        thread = io_thread if renew_in_thread else None
        self._holder = LeaseHolder(self.store, open_tasks, thread=thread)
        self._claims = Catalog(self.store, CLAIMS, claims.of_stored)
        self._docs = Catalog(self.store, DOCS, documents.of_stored)
        self._leases = Leases(self.store, self._holder)

    @property
    def claims(self) -> Catalog[Claim]:
        """All claims: `get(key)`, `list(prefix)`."""
        return self._claims

    @property
    def docs(self) -> Catalog[Snapshot]:
        """All documents: `get(key)`, `list(prefix)`."""
        return self._docs

    @property
    def leases(self) -> Leases:
        """All leases: `get(key)`, `list(prefix)`, `attach`, `cooperative_write`."""
        return self._leases

    async def claim(self, key: str, value: object, *, label: str | None = None) -> ClaimResult:
        """Claim `key` with `value`, unless somebody has: then theirs is the value.

        Args:
            key: what is claimed.
            value: of built-in types.
            label: of this process, for people; by default host and process id.

        Returns:
            The value that everybody gets, and whether this call made it.

        Raises:
            InvalidId: the key cannot be part of an object's name.
            InvalidArguments: the value cannot be stored.
            StoreUnavailable: no answer; the claim may have been made, or may be yet.
        """
        return await claims.claim(self.store, key, value, label=label)

    @overload
    async def once(
        self, key: str, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    @overload
    async def once(
        self, key: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    async def once(
        self, key: str, fn: Callable[P, Awaitable[R] | R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """As `durable.once`, for programs that are no step.

        Raises:
            OutcomeUnknown: somebody began it, and it is not known what became of it.
            InvalidId: the key is empty, too long or has control characters.
        """
        effect = Effect(store=self.store, key=key, label=own_label())
        return await effect.once(functools.partial(fn, *args, **kwargs))

    async def settle(
        self, key: str, value: object = None, *, happened: bool = True, by: str = ""
    ) -> None:
        """Say what became of an effect of `once` of which nobody knows.

        Args:
            key: of the effect.
            value: what it came to, for those who ask later.
            happened: False: it did not take place, so the next to ask tries again.
            by: who says so; by default host and process id.

        Raises:
            Conflict: no effect of that key is under way.
            InvalidArguments: the value cannot be stored.
        """
        effect = Effect(store=self.store, key=key, label=texts.check(by, "by") or own_label())
        await effect.settle(value, happened=happened)

    def doc(self, key: str, *, label: str | None = None) -> Document:
        """The document of that key, to be read, updated or deleted; it need not exist.

        Raises:
            InvalidId: the key cannot be part of an object's name.
        """
        return Document(self.store, key, label=label)

    async def lease(
        self,
        key: str,
        *,
        ttl: Duration | Terms = TTL_DEFAULT,
        label: str | None = None,
        state_fn: StateFn | None = None,
        renew: bool = True,
    ) -> Lease | Taken | Refuse:
        """Acquire a lease, which is then renewed until it is released or the client is closed.

        Args:
            key: what is owned.
            ttl: after which others may take it if it is not renewed: seconds, a timedelta or text
                such as "1h30m"; 12 s at least.
            label: of this process, for people; by default host and process id.
            state_fn: takes the state as it is left (None if there is none) and returns the state
                to begin with, or `Refuse(reason)` where nothing is left to do. Both are decided
                with the acquisition, in one write. It may be called more than once.
            renew: renew in the background; else only the lease's own calls renew.

        Returns:
            The lease, which is true as a condition; or, false, `Taken` or what `state_fn` refused
            with.

        Raises:
            InvalidId: the key cannot be part of an object's name.
            InvalidArguments: the state cannot be stored.
            StoreUnavailable: no answer; it may have been taken, and then runs out by itself.
            UsageError: the client is closed, or the ttl too short or not to be read.
        """
        return await self._holder.acquire(Wanted(key, ttl, label, state_fn), renew=renew)

    def hold(
        self,
        key: str,
        *,
        ttl: Duration | Terms = TTL_DEFAULT,
        label: str | None = None,
        state_fn: StateFn | None = None,
        waiting: bool = False,
        timeout: Duration | None = WAIT_DEFAULT,
    ) -> AbstractAsyncContextManager[Lease]:
        """Hold a lease for as long as an `async with` block lasts.

        If it is lost, the block is cancelled and `LeaseLost` raised. At the end it is released,
        also if the block raises.

        Args:
            key: what is owned.
            ttl: as of `lease`.
            label: as of `lease`.
            state_fn: as of `lease`.
            waiting: wait while somebody else holds it.
            timeout: how long to wait at most: seconds, a timedelta or text such as "1h30m"; None
                for ever.

        Raises:
            LeaseTaken: somebody else holds it.
            LeaseRefused: `state_fn` refused.
            LeaseLost: it was lost before the end of the block.
            StoreUnavailable: the store does not answer.
            UsageError: the client is closed, the ttl too short, or a duration cannot be read.
        """
        wanted = Wanted(key, ttl, label, state_fn)
        longest = math.inf if timeout is None else durations.seconds(timeout)
        return self._holder.hold(wanted, waiting=longest if waiting else 0)
