"""Why an execution ended: values, not exceptions, because its owner acts on each differently."""

from __future__ import annotations

import msgspec

from durable.errors import StoreError
from durable.protocol.failures import Failure


class Finished(msgspec.Struct, frozen=True):
    """An outcome to record: the workflow function returned or raised, or its time `ran_out`.

    `cancelled`: the run was to be cancelled, and `RunCancelled` left the function.
    """

    value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    failure: Failure | None = None
    ran_out: bool = False
    cancelled: bool = False


class Attention(msgspec.Struct, frozen=True):
    """A human or other code must decide; nothing is recorded (see records.Attention)."""

    reason: str
    message: str
    hint: str
    path: str = ""
    recorded: str = ""
    asked: str = ""


def corrupt(said: str, path: str = "") -> Attention:
    """What to do about an object of the run that is damaged, or somebody else's."""
    hint = "look at the object in the store; remove it if it does not belong there"
    return Attention("corrupt", said, hint, path)


class LateRecord(msgspec.Struct, frozen=True):
    """A dead owner's record landed after this owner's list: list again under a new epoch."""

    path: str


class Stopped(msgspec.Struct, frozen=True):
    """Interrupted from outside; the run goes on elsewhere.

    `why`: `drain`, `lease` (lost), `taken` (by force, from its live holder), `store` (a write was
    refused for good: `error`), `cancelled` (whatever ran the worker was cancelled), `broken` (a
    fault of durable itself), `replayed` (a replay reached the end of the record).
    """

    why: str
    path: str = ""
    error: StoreError | None = None


class Parked(msgspec.Struct, frozen=True):
    """Everything in it waits: it goes on at `due`, or when it is woken before.

    Attributes:
        path: of the wait that ends first; empty: the run's own deadline comes first.
        due: by the store's clock; None: only others wake it.
        why: what it waits for, in words.
    """

    path: str
    due: float | None
    why: str = ""


Closing = Finished | Attention | LateRecord | Stopped | Parked
