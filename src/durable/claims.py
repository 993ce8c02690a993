"""Claims: the first writer wins, everyone converges on the winner's value.

A claim is an object that is only ever created. Whoever loses reads the winner's value and goes
on with that. A writer whose answer was lost recognises its own write by its nonce, so `won` is
never wrong about the writer itself.
"""

from __future__ import annotations

from typing import Any

import msgspec

from durable import catalog
from durable.protocol import primitives, records, texts
from durable.protocol.primitives import CLAIMS, ValueRecord
from durable.store import Store, Stored, Written
from durable.system import label as own_label


class Claim(msgspec.Struct, frozen=True):
    """A claim as it stands.

    Attributes:
        key: its name.
        value: the winner's.
        label: the winner's, for people.
        age: seconds since it was made, by the store's clock.
    """

    key: str
    value: Any
    label: str
    age: float


class ClaimResult(Claim, frozen=True):
    """What came of claiming.

    Attributes:
        won: this very call made the claim.
    """

    won: bool


async def claim(store: Store, key: str, value: object, *, label: str | None = None) -> ClaimResult:
    """Claim `key` with `value`, unless somebody has: then theirs is the value.

    Args:
        store: where claims are.
        key: what is claimed.
        value: of built-in types.
        label: of this process, for people; by default host and process id.

    Raises:
        InvalidId: the key cannot be part of an object's name.
        InvalidArguments: the value cannot be stored.
        StoreUnavailable: no answer; the claim may have been made, or may be yet.
    """
    name = primitives.object_name(CLAIMS, key)
    nonce = store.system.token()
    record = ValueRecord(
        key, primitives.encode_value(value, what=f"the value of claim {key!r}"), nonce,
        own_label() if label is None else texts.check(label, "label"), store.now(),
    )  # fmt: skip
    answer = await store.create(name, records.encode(record), nonce=nonce)
    if isinstance(answer, Written):
        # As loser and winner read it: the decoded copy.
        mine = _decoded(record)
        return ClaimResult(key, mine, record.label, catalog.age(answer.updated, store.now()), True)
    assert answer.current is not None
    there = of_stored(answer.current, store.now())
    return ClaimResult(key, there.value, there.label, there.age, False)


def of_stored(stored: Stored, now: float) -> Claim:
    """The claim an object holds.

    Raises:
        UsageError: it holds none.
    """
    record = catalog.decode_record(ValueRecord, stored)
    return Claim(record.key, _decoded(record), record.label, catalog.age(stored.created, now))


def _decoded(record: ValueRecord) -> Any:
    return primitives.decode_value(record.value, what=f"the value of claim {record.key!r}")
