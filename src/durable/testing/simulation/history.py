"""What happened in a simulation: facts for a checker, and a timeline for people.

The history knows nothing of the rules. Each event is (time, who, kind, facts).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

_ADDRESS = re.compile("scope [0-9a-f]+")  # in messages of cancellations
_SHOWN_MAX = 160  # characters of one fact in a timeline


class Event(NamedTuple):
    """One thing that happened.

    Kinds: `call` (a store call is sent), `mutation` (the store changed), `answer` (an answer
    arrived), `happened` (to a process), `body` and `ended` (of a step), `enter`, `received` and
    `left` (a workflow function), `host` (on which a process runs), `asked` and `reply` (of a
    client), `fault`, `phase`.
    """

    at: float
    who: str
    kind: str
    facts: dict[str, Any]


class History:
    """Events in their order.

    Args:
        now: the true time, in seconds since the simulation began.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.events: list[Event] = []
        self._now = now

    def add(self, who: str, kind: str, **facts: Any) -> None:
        self.events.append(Event(self._now(), who, kind, facts))

    def happened(self, who: str, what: str) -> None:
        self.add(who, "happened", what=what)

    def trace(self) -> str:
        """A hash over everything that happened, in its order."""
        digest = hashlib.blake2b(digest_size=16)
        for event in self.events:
            told = repr((event.at, event.who, event.kind, sorted(_traced(event))))
            digest.update(_ADDRESS.sub("scope", told).encode())
        return digest.hexdigest()

    def timeline(self, kinds: Iterable[str] | None = None) -> list[str]:
        """One line an event, for people."""
        wanted = None if kinds is None else set(kinds)
        return [_line(event) for event in self.events if wanted is None or event.kind in wanted]


def _traced(event: Event) -> list[tuple[str, Any]]:
    """Bodies of objects hold the ids of this process and of this boot."""
    left_out = {"body", "meta", "left"}
    return [(name, fact) for name, fact in event.facts.items() if name not in left_out]


def _line(event: Event) -> str:
    told = ((name, fact) for name, fact in event.facts.items() if name != "left")
    facts = " ".join(f"{name}={_shown(fact)}" for name, fact in told)
    return f"{event.at:10.4f}  {event.who:<8} {event.kind:<9} {facts}"


def _shown(fact: object) -> str:
    text = fact.decode(errors="replace") if isinstance(fact, bytes) else str(fact)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."
