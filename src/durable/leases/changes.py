"""What the holder wants written, and how several wishes become one state."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

import anyio
import msgspec

from durable.protocol import primitives
from durable.protocol.primitives import LeaseRecord

End = Literal["", "released", "handed over"]


class View(NamedTuple):
    """The state as the holder knows it, encoded.

    Attributes:
        current: what stands in the store.
        own: what the holder last wrote, or knowingly took over; what others wrote is the
            difference.
    """

    current: bytes
    own: bytes


Apply = Callable[[View], View]


class Change:
    """One wish of a caller, who waits until it is written.

    Attributes:
        apply: what it does to the state. It may be called more than once.
        end: what becomes of the lease with it; empty: it goes on.
        done: set when it is written, or will not be.
        error: why it was not.
    """

    def __init__(self, apply: Apply, end: End = "") -> None:
        self.apply = apply
        self.end: End = end
        self.done = anyio.Event()
        self.error: Exception | None = None

    def settle(self, error: Exception | None = None) -> None:
        """Tell the caller."""
        self.error = error
        self.done.set()


class Composed(NamedTuple):
    """One logical write that carries several changes.

    Attributes:
        record: what is written.
        own: the holder's own state once it is.
        changes: those that it carries.
        end: what becomes of the lease with it.
    """

    record: LeaseRecord
    own: bytes
    changes: list[Change]
    end: End


def nothing(view: View) -> View:
    """Renew, and keep the state."""
    return view


def to_value(asked: bytes) -> Apply:
    """The state becomes `asked`, merged with what others wrote meanwhile."""

    def apply(view: View) -> View:
        return View(primitives.merge_states(view.own, view.current, asked), asked)

    return apply


def by_function(fn: Callable[[bytes], bytes]) -> Apply:
    """The state becomes what `fn` makes of it, others' writes included."""

    def apply(view: View) -> View:
        new = fn(view.current)
        return View(new, primitives.own_after(view.own, view.current, new))

    return apply


def compose(
    record: LeaseRecord,
    own: bytes,
    changes: Iterable[Change],
    *,
    nonce: str,
    boot: str,
    fail: Callable[[Change, Exception], None],
) -> Composed:
    """All changes, one after the other, on what stands in the store.

    Args:
        fail: told of a change that raises, and of its error; it is left out.
    """
    view = View(bytes(record.state), own)
    carried: list[Change] = []
    end: End = ""
    for change in changes:
        try:
            view = change.apply(view)
        except Exception as e:  # noqa: BLE001  # a user's function may raise anything
            fail(change, e)
            continue
        carried.append(change)
        end = change.end or end
    state = msgspec.Raw(view.current)
    if end == "released":
        written = primitives.released(record, nonce=nonce, state=state)
    else:
        written = primitives.renewal(record, nonce=nonce, state=state, boot=boot)
    return Composed(written, view.own, carried, end)
