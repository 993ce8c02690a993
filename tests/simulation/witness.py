"""What workflows and bodies tell the history: proof that owes nothing to the runtime's records.

Each execution of a body makes a value that no other execution makes, so a body that ran again, or
a value that was changed, shows. A *slot* is the place of a call in the workflow, named by the
workflow's code.
"""

from __future__ import annotations

from typing import Any

from durable import current
from durable.runtime.scopes import Scope, here
from durable.testing.simulation.world import who, world


class Body:
    """One execution of a step's body."""

    def __init__(self, slot: str) -> None:
        self.world, self.place = world(), current()
        self.world.tokens += 1
        self.token = f"{slot}|{self.world.tokens}"
        self.slot = slot
        self._add("body")

    @property
    def seconds(self) -> float:
        """How long it takes."""
        chance = self.world.bodies
        return chance.choice([0.0, 0.05, 0.3]) * chance.random() + self.world.body_seconds

    def value(self, size: int = 0) -> str:
        self._add("ended", outcome="value")
        return self.token + "." * size

    def error(self, kind: type[Exception] = ValueError) -> Exception:
        self._add("ended", outcome="error")
        return kind(self.token)

    def _add(self, kind: str, **facts: Any) -> None:
        place = self.place
        self.world.history.add(
            who(), kind, run=place.run_id, slot=self.slot, token=self.token, epoch=place.epoch,
            attempt=place.attempt, key=place.idempotency_key, trusted=self.world.trusted(who()),
            **facts,
        )  # fmt: skip


class Witness:
    """One execution of a workflow function: what it was handed, in order."""

    def __init__(self) -> None:
        self.world, self.place = world(), current()
        self.log: list[Any] = []
        self._add("enter")

    def got(self, what: Any) -> Any:
        """The code was handed this. What unwinding code is handed does not count."""
        scope = here.get()
        if isinstance(scope, Scope) and scope.execution.closing is not None:
            return what
        self._add("received", index=len(self.log), what=what)
        self.log.append(what)
        return what

    def tell(self, kind: str, **facts: Any) -> None:
        """What else a rule wants to know."""
        self._add(kind, **facts)

    def left(self, value: Any) -> Any:
        self._add("left", outcome="value", value=value)
        return value

    def raised(self, error: BaseException) -> None:
        self._add("left", outcome="error", value=str(error))

    def _add(self, kind: str, **facts: Any) -> None:
        place = self.place
        self.world.history.add(
            who(), kind, run=place.run_id, epoch=place.epoch, key=place.idempotency_key, **facts
        )
