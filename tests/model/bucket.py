"""A strict bucket and the processes that use it, for models in which many things can be anywhere.

A process is a generator: it yields a call, and is sent the answer. Each call is one step, and
between two of them anything may happen, so every process is also one that was paused for however
long. Besides, so often as `Faults` says, a process dies; the answer to a write that was carried
out is lost; or a write is under way when its sender gives up waiting, and lands at any moment
after that, or never.

`create`, `replace` and `delete` are for processes what the store port is for the runtime: they
ask until it is known what became of a write, and recognise their own by its value, which nobody
else writes (P8).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Iterator
from typing import Any, Literal, NamedTuple

REFUSED, UNKNOWN = 0, -1  # answers to a write; what was carried out is answered by a generation

Value = tuple[Any, ...]


class Call(NamedTuple):
    """One call of the bucket; or of nobody: `choose` of `value`, `note` a fact for the rules."""

    verb: Literal["get", "list", "create", "replace", "delete", "choose", "note"]
    name: str
    value: Value = ()
    generation: int = 0

    def __str__(self) -> str:
        said = " ".join(map(str, self.value))
        return f"{self.verb} {self.name}{f' ({said})' if said else ''}"


class Found(NamedTuple):
    """An object. Without a value it was deleted; its generations are never used again."""

    generation: int
    value: Value | None


Process = Callable[[], Generator[Call, Any, None]]
Write = Generator[Call, Any, Any]


class Faults(NamedTuple):
    """How many of each."""

    deaths: int = 0
    lost: int = 0
    late: int = 0


class Actor(NamedTuple):
    """A process so far: the answers it was given decide all else."""

    answers: tuple[Any, ...] = ()
    over: Literal["", "ended", "died"] = ""


class State(NamedTuple):
    """Everything. `actors` in the order of the world's processes; `late` are writes under way."""

    objects: tuple[tuple[str, Found], ...]
    actors: tuple[Actor, ...]
    faults: Faults
    late: tuple[Call, ...] = ()
    notes: frozenset[Value] = frozenset()

    def there(self, name: str) -> Value | None:
        """What an object says; None if there is none."""
        return _there(self.objects, name)

    def is_quiet(self) -> bool:
        """Nothing can happen any more, but by somebody new."""
        return not self.late and all(actor.over for actor in self.actors)


class World:
    """The processes, and what is there in the beginning.

    Args:
        faulty: those that meet faults; all by default.
    """

    def __init__(
        self,
        processes: dict[str, Process],
        objects: dict[str, Value],
        faults: Faults,
        *,
        faulty: str | None = None,
    ) -> None:
        self.names = list(processes)
        self._processes = list(processes.values())
        self._faulty = [faulty in {None, name} for name in self.names]
        self._known: dict[tuple[int, tuple[Any, ...]], tuple[Call | None, frozenset[Value]]] = {}
        first = tuple((name, Found(1, value)) for name, value in sorted(objects.items()))
        self.start = State(first, tuple(Actor() for _ in processes), faults)

    def over(self, state: State, name: str) -> str:
        """How a process ended; empty while it goes on."""
        return state.actors[self.names.index(name)].over

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """What can happen next."""
        for at, call in enumerate(state.late):
            landed, _ = _carried_out(state.objects, call)
            late = state.late[:at] + state.late[at + 1 :]
            yield f"late: {call}", state._replace(objects=landed, late=late)
        for index, actor in enumerate(state.actors):
            if not actor.over:
                yield from self._goes_on(state, index, actor)

    def _goes_on(self, state: State, index: int, actor: Actor) -> Iterator[tuple[str, State]]:
        call, _ = self._next(index, actor.answers)
        assert call is not None
        name = self.names[index]
        if call.verb == "choose":
            for chosen in call.value:
                yield f"{name} chooses {chosen}", self._told(state, index, actor, chosen)
            return
        objects, answer = _carried_out(state.objects, call)
        yield f"{name}: {call}", self._told(state._replace(objects=objects), index, actor, answer)
        if not self._faulty[index]:
            return
        deaths, lost, late = state.faults
        if deaths:
            dead = _with(state, index, actor._replace(over="died"))
            yield f"{name} dies", dead._replace(faults=Faults(deaths - 1, lost, late))
        if call.verb in {"get", "list"}:
            return
        if lost and answer != REFUSED:
            unheard = state._replace(objects=objects, faults=Faults(deaths, lost - 1, late))
            told = self._told(unheard, index, actor, UNKNOWN)
            yield f"{name}: {call}, and the answer is lost", told
        if late:
            sent = (*state.late, call)
            unheard = state._replace(late=sent, faults=Faults(deaths, lost, late - 1))
            yield f"{name}: {call}, on the way", self._told(unheard, index, actor, UNKNOWN)

    def _told(self, state: State, index: int, actor: Actor, answer: Any) -> State:
        answers = (*actor.answers, answer)
        call, notes = self._next(index, answers)
        noted = state._replace(notes=state.notes | notes) if notes - state.notes else state
        return _with(noted, index, Actor(answers, "" if call is not None else "ended"))

    def _next(self, index: int, answers: tuple[Any, ...]) -> tuple[Call | None, frozenset[Value]]:
        """The call after those answers, None at the end; and all that was noted until then."""
        known = self._known.get((index, answers))
        if known is None:
            known = self._known[index, answers] = _played(self._processes[index], answers)
        return known


def _played(process: Process, answers: tuple[Any, ...]) -> tuple[Call | None, frozenset[Value]]:
    running, notes, left = process(), set[Value](), iter(answers)
    try:
        call = next(running)
        while True:
            if call.verb == "note":
                notes.add(call.value)
                call = running.send(None)
                continue
            try:
                answer = next(left)
            except StopIteration:
                return call, frozenset(notes)
            call = running.send(answer)
    except StopIteration:
        return None, frozenset(notes)


@functools.lru_cache(maxsize=100_000)
def _carried_out(
    objects: tuple[tuple[str, Found], ...], call: Call
) -> tuple[tuple[tuple[str, Found], ...], Any]:
    """The objects after a call, and the answer."""
    there = dict(objects)
    found = there.get(call.name, Found(0, None))
    exists = found.value is not None
    match call.verb:
        case "get":
            return objects, found if exists else None
        case "list":
            return objects, tuple(
                name for name, o in objects if name.startswith(call.name) and o.value is not None
            )
        case "create" if exists:
            return objects, REFUSED
        case "replace" | "delete" if not exists or found.generation != call.generation:
            return objects, REFUSED
    value = None if call.verb == "delete" else call.value
    there[call.name] = Found(found.generation + (call.verb != "delete"), value)
    return tuple(sorted(there.items())), found.generation + 1


def _there(objects: tuple[tuple[str, Found], ...], name: str) -> Value | None:
    return next((found.value for known, found in objects if known == name), None)


def _with(state: State, index: int, actor: Actor) -> State:
    actors = state.actors
    return state._replace(actors=(*actors[:index], actor, *actors[index + 1 :]))


# -- what processes say ----------------------------------------------------------------------------


def get(name: str) -> Call:
    return Call("get", name)


def listed(prefix: str) -> Call:
    return Call("list", prefix)


def note(*fact: Any) -> Call:
    return Call("note", "", fact)


def choose(*options: str) -> Call:
    return Call("choose", "", options)


def create(name: str, *value: Any) -> Write:
    """Create it; what is there then, whoever made it."""
    while True:
        answer = yield Call("create", name, value)
        if answer > 0:
            return Found(answer, value)
        there = yield get(name)
        if there is not None:
            return there


def replace(
    name: str, generation: int, *value: Any, ours: Callable[[Value], bool] | None = None
) -> Write:
    """Replace that generation; its successor, or None if somebody else was quicker.

    Args:
        ours: whether what is there then tells of our write; by default, if it is what we wrote.
    """
    while True:
        answer = yield Call("replace", name, value, generation)
        if answer > 0:
            return Found(answer, value)
        there = yield get(name)
        if there is None or (answer == REFUSED and there.generation == generation):
            return None
        if there.generation != generation:
            return there if (ours or value.__eq__)(there.value) else None


def delete(name: str, generation: int) -> Write:
    """Delete that generation; False if another is there."""
    while True:
        answer = yield Call("delete", name, generation=generation)
        if answer > 0:
            return True
        there = yield get(name)
        if there is None:
            return True
        if there.generation != generation:
            return False
