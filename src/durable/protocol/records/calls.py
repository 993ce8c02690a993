"""What a run's folder says of its calls: outcomes, attempts, waits, decisions, undo."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from durable.protocol.failures import Failure

Outcome = Literal["value", "error", "cancelled", "abandoned"]


class Slept(msgspec.Struct, array_like=True):
    """A sleep that its owner handed over under this order number."""

    n: int
    path: str


class Step(msgspec.Struct, omit_defaults=True):
    """`steps/<path>`: the outcome of one durable call.

    `slept`: sleeps handed over before it. A sleep has no outcome object of its own; its place in
    the order is known from whatever was recorded next.

    `patches`: what `patched` had said yes to before it, as far as no earlier record says so.

    `closed`: calls with a claim or a failed attempt that a decision had closed before it, so that
    they have no outcome. For those who look at the run; replay decides it anew.
    """

    path: str
    name: str
    outcome: Outcome
    epoch: int
    n: int  # order among the records of this epoch's owner
    nonce: str
    time: float
    kind: str = "step"
    digest: str = ""  # digests.of_call; empty: not compared
    value: msgspec.Raw | UnsetType = UNSET  # values.encode
    failure: Failure | None = None
    attempt: int = 1
    note: str = ""  # who recorded it by hand, and why
    published: dict[str, msgspec.Raw] = {}  # by the body; not known to be in `state/` yet
    slept: list[Slept] = []
    cleanup: bool = False  # made by a cancelled run that cleaned up
    patches: list[str] = []
    closed: list[str] = []


class Group(msgspec.Struct, omit_defaults=True):
    """`groups/<k>`: outcomes of steps that are recorded together, the k-th such record.

    Whoever writes it knows all before. Without steps it keeps who does not know it from going on.
    """

    k: int
    epoch: int
    nonce: str
    time: float
    steps: list[Step]  # without a nonce of their own

    def outcomes(self) -> list[Step]:
        """The same as items of the journal."""
        return [msgspec.structs.replace(step, nonce=self.nonce) for step in self.steps]


class Wait(msgspec.Struct, omit_defaults=True):
    """`waits/<path>`: a wait has begun. `due` is its one absolute deadline; None: it has none.

    `closed` as in `Step`, and sleeps that are over.
    """

    path: str
    kind: str
    name: str
    epoch: int
    nonce: str
    time: float
    due: float | None = None
    closed: list[str] = []


class Take(msgspec.Struct, omit_defaults=True):
    """`takes/<k>`: the k-th decision of the instance's inbox, and the outcome of its call.

    What competes for something is decided in this one chain: which wait gets an event, whether
    the event or the deadline came first, which branch of a select won.

    `event`: the key of the event that was taken, whose value stands here too.
    """

    k: int
    path: str
    kind: str
    name: str
    outcome: Outcome
    epoch: int
    n: int
    nonce: str
    time: float
    event: str = ""
    value: msgspec.Raw | UnsetType = UNSET
    failure: Failure | None = None
    slept: list[Slept] = []
    patches: list[str] = []
    closed: list[str] = []
    note: str = ""  # who recorded it by hand, and why

    def as_step(self) -> Step:
        """The same outcome as an item of the journal."""
        return Step(
            path=self.path, name=self.name, kind=self.kind, outcome=self.outcome,
            epoch=self.epoch, n=self.n, nonce=self.nonce, time=self.time, value=self.value,
            failure=self.failure, slept=self.slept, patches=self.patches, closed=self.closed,
            note=self.note,
        )  # fmt: skip


class Event(msgspec.Struct, omit_defaults=True):
    """`events/<name>/<key>`: something sent to the run."""

    name: str
    key: str
    value: msgspec.Raw
    nonce: str
    time: float


class Attempt(msgspec.Struct, omit_defaults=True):
    """`attempts/<path>/<n>`: the n-th attempt failed; the next is due at `due`.

    `began`: when the first attempt of the call began, as far as it is known. `details`: what a
    body of the call last gave to `heartbeat`.
    """

    path: str
    attempt: int
    failure: Failure
    due: float
    nonce: str
    time: float
    epoch: int = 0
    began: float = 0.0
    details: msgspec.Raw | UnsetType = UNSET  # values.encode

    def as_wait(self) -> Wait:
        """The wait for the attempt that follows."""
        return Wait(
            path=self.path, kind="step", name="", epoch=self.epoch, nonce=self.nonce,
            time=self.time, due=self.due,
        )  # fmt: skip


class Begin(msgspec.Struct, omit_defaults=True):
    """`starts/<path>/<n>`: the n-th body of an at-most-once step begins.

    Only the owner whose nonce it is runs that body. Without an outcome or a failed attempt beside
    it, what became of the body is not known.
    """

    path: str
    attempt: int
    nonce: str
    time: float
    epoch: int


class Beat(msgspec.Struct, omit_defaults=True):
    """`beats/<path>/<epoch>`: what the body of a call last gave to `heartbeat` in that epoch."""

    path: str
    attempt: int
    epoch: int
    nonce: str
    time: float
    details: msgspec.Raw  # values.encode


class Published(msgspec.Struct, omit_defaults=True):
    """`state/<name>/<epoch>`: progress as last published in that epoch; the highest one counts."""

    name: str
    epoch: int
    nonce: str
    time: float
    value: msgspec.Raw  # values.encode


class Undo(msgspec.Struct, omit_defaults=True):
    """`undo/<path>`: the step is about to begin; unless the run completes it is to be undone.

    `n` counts the registrations of the epoch's owner: what was registered last is undone first.
    """

    path: str
    name: str  # of the step
    input: msgspec.Raw  # values.encode_call
    epoch: int
    n: int
    nonce: str
    time: float
