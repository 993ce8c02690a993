"""When branches that run side by side are decided, and how that is recorded.

Which branch ended first is told by the order of handing over, which is recorded; so the failure
of one in a `gather` needs no record of its own. Where the code goes on while others are still
under way (`select`, `map(enough=)`), or where the order rests on a sleep that nothing recorded
names yet, the decision is a take: recorded before it is acted on, and followed on replay.
"""

from __future__ import annotations

import math
from collections.abc import Coroutine, Sized
from dataclasses import dataclass, field
from typing import Any

import msgspec

from durable.errors import UsageError
from durable.protocol import values
from durable.protocol.records import Step
from durable.runtime.calls import Call
from durable.runtime.scopes import Scope
from durable.runtime.wishes import Answer, Wish


@dataclass(kw_only=True)
class Rule:
    """Counts how branches end.

    Attributes:
        tolerated: how many may fail; one more decides.
        enough: so many successes decide; None: all branches are waited for.
        recorded: the branches that decided it before, if it is recorded; others do not count.
        failed: the branches that failed, in the order in which they ended.
        succeeded: those that did not.
    """

    tolerated: float = 0
    enough: int | None = None
    recorded: list[int] | None = None
    failed: list[int] = field(default_factory=list)
    succeeded: list[int] = field(default_factory=list)

    def ended(self, index: int, *, failed: bool) -> bool:
        """A branch has ended; True if that decides."""
        (self.failed if failed else self.succeeded).append(index)
        if self.recorded is not None:
            return set(self.recorded) <= {*self.failed, *self.succeeded}
        return self.is_failed or (self.enough is not None and len(self.succeeded) >= self.enough)

    @property
    def is_failed(self) -> bool:
        """Whether more have failed than are tolerated, among those that count."""
        return len(self.counted(self.failed)) > self.tolerated

    @property
    def decisive(self) -> list[int]:
        """The branches by which it is decided."""
        return self.counted(self.failed if self.is_failed else self.succeeded)

    def counted(self, branches: list[int]) -> list[int]:
        """Those of these branches that count."""
        if self.recorded is None:
            return branches
        return [index for index in branches if index in self.recorded]


def tolerance(tolerate: float | str | None, items: object, enough: int | None) -> float:
    """How many failures `tolerate` allows.

    Args:
        tolerate: a count, a share such as `"10%"`, or None: none, or as many as leave `enough`.
        items: counted only if a share of them is asked for.
        enough: how many must succeed.

    Raises:
        UsageError: it cannot be read, or the items cannot be counted.
    """
    if tolerate is None:
        return 0 if enough is None else _count(items) - enough
    if isinstance(tolerate, str):
        share = tolerate.removesuffix("%")
        try:
            percent = float(share) if share != tolerate else math.nan
        except ValueError:
            percent = math.nan
        if not 0 <= percent <= 100:
            raise UsageError(f"tolerate={tolerate!r}: write a count, or a share such as '10%'")
        return math.floor(_count(items) * percent / 100)
    if isinstance(tolerate, bool) or not tolerate >= 0:
        raise UsageError(f"tolerate={tolerate!r}: write a count, or a share such as '10%'")
    return tolerate


def _count(items: object) -> int:
    if isinstance(items, Sized):
        return len(items)
    raise UsageError(
        "a share of the items, or `enough`, needs to know how many there are",
        hint="pass a list, or give `tolerate` as a number",
    )


class Verdict(Call[Any]):
    """The decision of some branches, as a call: its path is that of the branches.

    Attributes:
        winners: the branches that decide, once they are known.
    """

    __slots__ = ("winners",)

    def __init__(self, scope: Scope, kind: str) -> None:
        super().__init__(scope, kind, kind)
        self.cancellable = False  # what has happened has happened
        self.winners: list[int] = []

    def course(self, branch: Scope) -> Coroutine[Any, Any, tuple[Step, object]]:
        execution = self.scope.execution

        async def stand(wish: Wish) -> None:
            value = msgspec.Raw(values.encode(self.winners))
            execution.inbox.settle(wish, Answer("value", value, copy=self.winners))
            await wish.decided.wait()

        return execution.perform(self, branch, lambda: execution.inbox.decide(self, branch, stand))

    def recorded(self) -> list[int] | None:
        """What an earlier owner recorded; None if nothing is."""
        step = self.scope.execution.recorded(self.path)
        if step is None or isinstance(step.value, msgspec.UnsetType):
            return None
        decoded: Any = values.decode(step.value)
        return list(decoded)
