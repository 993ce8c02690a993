"""Every state that a small model can reach, breadth first, so that a trace is the shortest."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

State = TypeVar("State", bound=Hashable)

STATES_MAX = 2_000_000


@dataclass
class Explored(Generic[State]):
    """What the search came to.

    Attributes:
        states: how many there are; all of them if nothing is wrong.
        wrong: what is wrong in the first bad state; empty if nothing is.
        trace: how it came to that, step by step.
    """

    states: int
    wrong: str
    trace: list[str]


def explore(
    start: State,
    steps: Callable[[State], Iterable[tuple[str, State]]],
    wrong: Callable[[State], str],
) -> Explored[State]:
    """Search until a bad state, or to the end.

    Args:
        steps: what can happen next in a state, with a name for it.
        wrong: what is wrong with a state; empty if nothing is.
    """
    came_from: dict[State, tuple[State, str] | None] = {start: None}
    waiting = deque([start])
    while waiting:
        state = waiting.popleft()
        found = wrong(state)
        if found:
            return Explored(len(came_from), found, _trace(came_from, state))
        for name, after in steps(state):
            if after not in came_from:
                came_from[after] = (state, name)
                waiting.append(after)
        assert len(came_from) < STATES_MAX, "the model is too large for a test"
    return Explored(len(came_from), "", [])


def _trace(came_from: dict[State, tuple[State, str] | None], state: State) -> list[str]:
    names: list[str] = []
    step = came_from[state]
    while step is not None:
        state, name = step
        names.append(name)
        step = came_from[state]
    return names[::-1]
