"""The users' own claims, documents and leases: as they are stored, and the rules of leases.

    claims/<key>   created once and never changed: the first writer's value is everybody's
    docs/<key>     a register: one value, changed by compare-and-swap
    once/<key>/<n>/begun, ended   claims: the n-th try of an outside effect, and what came of it
    leases/<key>   a register: who holds it, with which epoch, and a state that outlives holders

A lease's object is kept when it is released: only the holder is cleared, so the epoch never goes
back. The holder's token is a secret of the process that holds it; stored is its digest alone, so
nothing that is read from the bucket lets anybody pass for the holder.

Somebody else's write into the state (`cooperative_write`) leaves the holder, the epoch and the
moment of the last renewal as they are: a lease whose holder is dead does not live longer for it.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from durable.errors import InvalidArguments, InvalidId, UsageError
from durable.protocol import leases, names, records, values
from durable.protocol.failures import Failure
from durable.protocol.leases import Terms, Verdict

CLAIMS: Final = "claims/"
DOCS: Final = "docs/"
LEASES: Final = "leases/"
ONCE: Final = "once/"

HASH_SHOWN: Final = 6  # digits of a holder's digest that lists show: enough to tell two apart

NOTHING: Final = b"null"  # the state of a lease that has none


class Keep(enum.Enum):
    """The type of `KEEP`."""

    KEEP = "KEEP"

    def __repr__(self) -> str:
        return "KEEP"


KEEP: Final = Keep.KEEP
"""Returned or given instead of a value: leave what is there as it is."""


class ValueRecord(msgspec.Struct, omit_defaults=True):
    """`claims/<key>` and `docs/<key>`: a value, and who wrote it."""

    key: str
    value: msgspec.Raw  # values.encode
    nonce: str
    label: str = ""
    time: float = 0.0


class EffectBegun(msgspec.Struct, omit_defaults=True):
    """`once/<key>/<n>/begun`: the n-th try of an outside effect begins, the owner's alone."""

    key: str
    attempt: int
    nonce: str
    time: float
    label: str = ""


class EffectEnded(msgspec.Struct, omit_defaults=True):
    """`once/<key>/<n>/ended`: what came of it. With a failure it did not take place."""

    key: str
    attempt: int
    nonce: str
    time: float
    value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET  # values.encode
    failure: Failure | None = None
    by_hand: str = ""  # who settled it, if it was not the process that began it


class LeaseRecord(msgspec.Struct, omit_defaults=True):
    """`leases/<key>`: `holder` is the digest of the holder's token, empty if nobody holds it.

    `ttl` and `margin` in seconds. `boot`: of the machine the store's time belongs to, as in a
    worker's lease. `renewed`: when the holder last wrote, by the store's clock, if somebody else
    has written since; 0: the object's own `updated` says it.
    """

    key: str
    epoch: int
    nonce: str
    state: msgspec.Raw = msgspec.Raw(NOTHING)
    holder: str = ""
    label: str = ""
    ttl: float = 0.0
    margin: float = 0.0
    boot: str = ""
    renewed: float = 0.0


# -- effects -------------------------------------------------------------------------------------


def effect_folder(key: str) -> str:
    """Where the tries of that effect are.

    Raises:
        InvalidId: the key cannot be part of an object's name.
    """
    return f"{ONCE}{names.check_id(key, what='key')}/"


def effect_begun(key: str, attempt: int) -> str:
    return f"{effect_folder(key)}{attempt:06}/begun"


def effect_ended(key: str, attempt: int) -> str:
    return f"{effect_folder(key)}{attempt:06}/ended"


# -- keys and values -----------------------------------------------------------------------------


def object_name(folder: str, key: str) -> str:
    """Where a key's object is.

    Raises:
        InvalidId: the key cannot be part of a name.
    """
    return f"{folder}{names.check_id(key, what='key')}"


def folder_prefix(folder: str, prefix: str) -> str:
    """What the names of all keys that start with `prefix` start with.

    Raises:
        InvalidId: it is no text.
    """
    try:
        return f"{folder}{names.encode_part(prefix)}"
    except (TypeError, UnicodeEncodeError) as e:
        raise InvalidId(f"{prefix!r} cannot be the beginning of a key") from e


def encode_value(value: object, *, what: str) -> msgspec.Raw:
    """A value as it is stored; `what` it is, for the message.

    Raises:
        InvalidArguments: it cannot be stored.
    """
    try:
        return msgspec.Raw(values.encode_checked(value)[0])
    except values.Unencodable as e:
        raise InvalidArguments(
            f"{what} cannot be stored: {e.said_of('value')}",
            hint="store built-in types: convert it before, for example with dataclasses.asdict",
        ) from e


def decode_value(stored: bytes | msgspec.Raw, *, what: str) -> Any:
    """The value as it was.

    Raises:
        UsageError: it is damaged.
    """
    try:
        return values.decode(stored)
    except values.Undecodable as e:
        raise UsageError(
            f"{what} is damaged: {e.said_of('value')}", hint="look at the object in the store"
        ) from e


# -- leases --------------------------------------------------------------------------------------


def digest_of(token: str) -> str:
    """What is stored of a holder's token."""
    return hashlib.sha256(token.encode()).hexdigest()


def shown(holder: str) -> str:
    """What people see of a holder: the first digits of its digest."""
    return holder[:HASH_SHOWN]


def renewed_at(lease: LeaseRecord, updated: float) -> float:
    """When the holder last wrote, by the store's clock."""
    return lease.renewed or updated


def verdict(lease: LeaseRecord | None, *, updated: float, now: float, boot: str) -> Verdict:
    """Whether the lease may be taken; the rule is that of workers' leases.

    Arguments as of `leases.verdict`. Both `takeable` and `expired` mean yes: taking over by
    compare-and-swap is the fence.
    """
    if lease is None:
        return "takeable"
    judged = records.Lease(
        worker=lease.holder, ttl=lease.ttl, margin=lease.margin, nonce=lease.nonce,
        boot=lease.boot, state="alive" if lease.holder else "dead",
    )  # fmt: skip
    return leases.verdict(judged, updated=renewed_at(lease, updated), now=now, boot=boot)


def acquired(
    previous: LeaseRecord | None,
    *,
    key: str,
    holder: str,
    label: str,
    terms: Terms,
    boot: str,
    state: msgspec.Raw,
    nonce: str,
) -> LeaseRecord:
    """The record of a new holder: every change of holder raises the epoch."""
    return LeaseRecord(
        key=key, epoch=1 if previous is None else previous.epoch + 1, nonce=nonce, state=state,
        holder=holder, label=label, ttl=terms.ttl, margin=terms.margin, boot=boot,
    )  # fmt: skip


def renewal(lease: LeaseRecord, *, nonce: str, state: msgspec.Raw, boot: str) -> LeaseRecord:
    """The record after a write of its holder."""
    return msgspec.structs.replace(lease, nonce=nonce, state=state, boot=boot, renewed=0.0)


def released(lease: LeaseRecord, *, nonce: str, state: msgspec.Raw) -> LeaseRecord:
    """The record that its holder leaves behind: no holder, the same epoch."""
    return LeaseRecord(key=lease.key, epoch=lease.epoch, nonce=nonce, state=state)


def revoked(lease: LeaseRecord, *, nonce: str) -> LeaseRecord:
    """The record after others freed it: no holder, and an epoch that its holder never had."""
    return LeaseRecord(key=lease.key, epoch=lease.epoch + 1, nonce=nonce, state=lease.state)


def written_by_others(
    key: str, lease: LeaseRecord | None, *, updated: float, nonce: str, state: msgspec.Raw
) -> LeaseRecord:
    """The record after a cooperative write, which renews nothing."""
    if lease is None:
        return LeaseRecord(key=key, epoch=0, nonce=nonce, state=state)
    since = renewed_at(lease, updated) if lease.holder else 0.0
    return msgspec.structs.replace(lease, nonce=nonce, state=state, renewed=since)


def merge_states(own: bytes, current: bytes, asked: bytes) -> bytes:
    """The state to write when the holder asks for `asked` and others may have written.

    Each top-level key is merged on its own: where the holder changes nothing (`asked` is as in
    `own`), what stands in `current` stays; where it does, the holder's value counts.

    Args:
        own: what the holder last wrote or knowingly took over.
        current: what stands in the store.
        asked: what the holder wants now.

    Raises:
        UsageError: others wrote, and `asked` is no dict, so that it cannot be merged.
    """
    if current in {own, asked}:
        return asked
    base, theirs, mine = _members(own), _members(current), _members(asked)
    if mine is None or theirs is None:
        raise UsageError(
            "the state was changed by somebody else, and only dicts can be merged",
            hint="keep a dict as the state of a lease that others write to, or use change_state",
        )
    base = base or {}
    merged: dict[object, object] = {}
    for member in _in_order(mine, theirs):
        asks = mine.get(member)
        chosen = theirs.get(member) if asks == base.get(member) else asks
        if chosen is not None:
            merged[member] = values.decode(chosen)
    return values.encode(merged)


def own_after(own: bytes, current: bytes, new: bytes) -> bytes:
    """What counts as the holder's own once it has made `new` of `current`.

    What others wrote and the holder left as it was stays theirs, so that a later `merge_states`
    does not take its absence for a wish to remove it.
    """
    mergeable = all(_members(state) is not None for state in (own, current, new))
    return merge_states(current, own, new) if mergeable else new


def _members(state: bytes) -> dict[object, bytes] | None:
    """The top-level members of a state, each encoded; none of no state; None if it is no dict."""
    decoded = values.decode(state)
    if decoded is None:
        return {}
    if type(decoded) is not dict:
        return None
    return {member: values.encode(value) for member, value in decoded.items()}


def _in_order(*parts: dict[object, bytes]) -> Iterator[object]:
    yield from dict.fromkeys(member for part in parts for member in part)
