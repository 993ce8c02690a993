"""A lease as others see it, and the two ways of not getting one."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from durable import catalog
from durable.protocol import primitives
from durable.protocol.primitives import LeaseRecord
from durable.store import Stored


class LeaseEntry(msgspec.Struct, frozen=True):
    """A lease as it stands.

    Attributes:
        key: its name.
        state: what its holders, and others, have written into it; None if nothing.
        status: `held`; `expired`: the holder has not renewed in time and may be replaced;
            `free`: it was released, or never held.
        label: of the holder, for people; empty if free.
        holder: 6 characters that tell one holder from another; empty if free.
        epoch: of the present or last holder; 0 if there never was one.
        age: seconds since the holder's last write (if free, anybody's), by the store's clock.
        ttl: seconds; 0 if free.
    """

    key: str
    state: Any
    status: Literal["held", "expired", "free"]
    label: str
    holder: str
    epoch: int
    age: float
    ttl: float


class Taken(msgspec.Struct, frozen=True):
    """The lease was not acquired: somebody holds it. False as a condition.

    Attributes:
        by: the lease as it stands.
    """

    by: LeaseEntry

    def __bool__(self) -> Literal[False]:
        return False


class Refuse(msgspec.Struct, frozen=True):
    """What a `state_fn` returns when there is nothing left to do: the lease stays as it is.

    False as a condition.

    Attributes:
        reason: for whoever asked for the lease.
    """

    reason: str

    def __bool__(self) -> Literal[False]:
        return False


def of_stored(stored: Stored, now: float, *, boot: str) -> LeaseEntry:
    """The lease an object holds, judged at the store's time `now`.

    Raises:
        UsageError: it holds none.
    """
    record = catalog.decode_record(LeaseRecord, stored)
    found = primitives.verdict(record, updated=stored.updated, now=now, boot=boot)
    held: Literal["held", "expired"] = "held" if found == "alive" else "expired"
    return LeaseEntry(
        key=record.key, state=state_of(record), status=held if record.holder else "free",
        label=record.label, holder=primitives.shown(record.holder), epoch=record.epoch,
        age=catalog.age(primitives.renewed_at(record, stored.updated), now), ttl=record.ttl,
    )  # fmt: skip


def state_of(record: LeaseRecord | None) -> Any:
    """The state as its writer gave it; None if there is none.

    Raises:
        UsageError: it is damaged.
    """
    if record is None:
        return None
    return primitives.decode_value(record.state, what=f"the state of lease {record.key!r}")
