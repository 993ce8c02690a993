"""Calls that are to be decided, and what they come to; see `inbox`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import anyio
import msgspec

from durable.protocol.failures import Failure
from durable.protocol.records import Outcome, Take
from durable.runtime.calls import Call
from durable.runtime.scopes import Scope

Key = tuple[str, str]  # name and key of an event


class Answer(msgspec.Struct, frozen=True):
    """What a call comes to.

    Attributes:
        copy: the decoded value.
        event: the event that was taken.
    """

    outcome: Outcome
    value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    failure: Failure | None = None
    copy: object = None
    event: Key | None = None


ABANDONED = Answer("abandoned")
CANCELLED = Answer("cancelled")


@dataclass(eq=False)
class Wish:
    """A call that is to be decided.

    Attributes:
        event: it takes the next event of this name; None: it takes none.
        answer: what it comes to if there is no event to take.
        begun: its decision is on the way into the record: nothing interrupts it.
        decided: set once it is recorded; `take` and `answer` then tell.
        deserted: its call was cut off and will not ask for its turn.
        standing: around what is done only as long as it is not decided.
    """

    call: Call[Any]
    branch: Scope
    event: str | None = None
    answer: Answer | None = None
    begun: bool = False
    decided: anyio.Event = field(default_factory=anyio.Event)
    take: Take | None = None
    deserted: bool = False
    standing: anyio.CancelScope | None = None
