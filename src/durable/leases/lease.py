"""A lease that this process holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, final

from durable.leases import changes
from durable.leases.changes import Change
from durable.leases.entries import state_of
from durable.leases.upkeep import Upkeep
from durable.protocol import primitives
from durable.protocol.primitives import KEEP, Keep


class Secret:
    """A text that no representation shows, of what holds it neither."""

    def __init__(self, text: str) -> None:
        self.reveal: Callable[[], str] = lambda: text

    def __repr__(self) -> str:
        return "<secret>"


@final
class Lease:
    """A lease that this process holds. Made by `client.lease`, `client.hold` and `attach`.

    In a bucket all writes of one lease are gathered to one in 1.25 seconds, the last quarter of
    which is for others; each call below returns when the write that carries it is acknowledged.
    Each raises `LeaseLost` once the lease is over.

    Args:
        upkeep: what renews it and writes.
        token: the holder's secret. It is shown nowhere, and stored nowhere.
    """

    def __init__(self, upkeep: Upkeep, token: str) -> None:
        self._upkeep = upkeep
        self._token = Secret(token)

    def __bool__(self) -> Literal[True]:
        # As the counterpart of Taken and Refuse, which are false.
        return True

    def __repr__(self) -> str:
        return f"<lease {self.key!r}, epoch {self.epoch}, holder {self.holder}>"

    @property
    def key(self) -> str:
        """Its name."""
        return self._upkeep.acquired.key

    @property
    def label(self) -> str:
        """Of its holder, for people."""
        return self._upkeep.acquired.label

    @property
    def epoch(self) -> int:
        """The fencing token: higher than that of every holder before."""
        return self._upkeep.acquired.epoch

    @property
    def ttl(self) -> float:
        """Seconds after which others may take it if it is not renewed."""
        return self._upkeep.acquired.ttl

    @property
    def holder(self) -> str:
        """6 characters that tell this holder from others; as lists show it."""
        return primitives.shown(self._upkeep.acquired.holder)

    @property
    def state(self) -> Any:
        """The state as of the last write, what others wrote before that included. A fresh copy."""
        return state_of(self._upkeep.record)

    @property
    def held(self) -> bool:
        """Whether it may be relied on at this moment. Costs nothing."""
        return self._upkeep.held

    @property
    def lost(self) -> str:
        """Why it was lost; empty if it was not."""
        return self._upkeep.lost

    async def renew(self) -> None:
        """Renew now, and find what others have written into the state."""
        await self._upkeep.write(Change(changes.nothing))

    async def update_state(self, value: object) -> None:
        """Make `value` the state, and renew.

        Of a dict, keys that others wrote and this holder never changed itself stay as they are.

        Raises:
            InvalidArguments: the value cannot be stored.
            UsageError: others wrote, and the states are no dicts, which could be merged.
        """
        await self._upkeep.write(Change(changes.to_value(self._encoded(value))))

    async def change_state(self, fn: Callable[[Any], Any]) -> None:
        """Make what `fn` makes of the state the state, and renew.

        Args:
            fn: takes the state, others' writes included, and returns the new one. It may be
                called more than once, and in another thread, so it must do nothing else. What
                it raises is raised here.

        Raises:
            InvalidArguments: what it returned cannot be stored.
        """

        def encoded(current: bytes) -> bytes:
            state = primitives.decode_value(current, what=self._state_name)
            return self._encoded(fn(state))

        await self._upkeep.write(Change(changes.by_function(encoded)))

    async def release(self, state: object = KEEP) -> None:
        """Let go of it at once, and leave `state` behind; by default the state as it is.

        The epoch stays, for the next holder to go on from.

        Raises:
            InvalidArguments: the state cannot be stored.
        """
        keep = isinstance(state, Keep)
        apply = changes.nothing if keep else changes.to_value(self._encoded(state))
        await self._upkeep.write(Change(apply, end="released"))

    async def hand_over(self) -> str:
        """Stop holding it here, and return the secret with which another process goes on.

        It is renewed once more, so that the other has a whole ttl to call `client.leases.attach`
        with the key and this token. The epoch stays the same: to the outside nothing changes.
        Whoever has the token is the holder, so do not print or store it.
        """
        await self._upkeep.write(Change(changes.nothing, end="handed over"))
        return self._token.reveal()

    @property
    def _state_name(self) -> str:
        return f"the state of lease {self.key!r}"

    def _encoded(self, value: object) -> bytes:
        return bytes(primitives.encode_value(value, what=self._state_name))
