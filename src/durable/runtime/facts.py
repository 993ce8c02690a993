"""The facts of a run: one list of its folder, and what that list says.

Whoever decides from facts reads the folder first and `start` after the last page. `start` sorts
behind every instance (instances are hex), so one list of a small folder is both.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from durable.protocol import attempts, names
from durable.protocol.journal import Journal, build, closed, outcomes
from durable.protocol.records import (
    Attempt,
    Beat,
    Begin,
    Cancel,
    Epoch,
    Group,
    Published,
    Result,
    Start,
    Step,
    Take,
    Undo,
    Wait,
)
from durable.runtime.branches import map_in
from durable.store import Store, Stored

R = TypeVar("R", bound=msgspec.Struct)

READS_AT_ONCE = 16  # gets of records too large for a list

_start = msgspec.json.Decoder(Start)
_step = msgspec.json.Decoder(Step)
_group = msgspec.json.Decoder(Group)
_attempt = msgspec.json.Decoder(Attempt)
_beat = msgspec.json.Decoder(Beat)
_published = msgspec.json.Decoder(Published)
_begin = msgspec.json.Decoder(Begin)
_undo = msgspec.json.Decoder(Undo)
_epoch = msgspec.json.Decoder(Epoch)
_result = msgspec.json.Decoder(Result)
_cancel = msgspec.json.Decoder(Cancel)
_wait = msgspec.json.Decoder(Wait)
_take = msgspec.json.Decoder(Take)

# Kinds of facts that others than its owners add to a run.
FROM_OUTSIDE = frozenset({"cancel", "events"})


class CorruptFact(Exception):
    """An object of the run's folder is not what its name says."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"object {name!r} is damaged or foreign: {why}")
        self.name = name


@dataclass
class Facts:
    """What the store holds of the instance that `start` names.

    Attributes:
        fresh: no owner has left anything, though others may have sent something.
        steps: also those of the groups.
        events: as listed; their bodies are read when they are taken.
    """

    start: Start
    fresh: bool = True
    steps: list[Step] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    begins: list[Begin] = field(default_factory=list)
    beats: list[Beat] = field(default_factory=list)
    published: list[Published] = field(default_factory=list)
    undos: list[Undo] = field(default_factory=list)
    epochs: list[Epoch] = field(default_factory=list)
    cancel: Cancel | None = None
    waits: list[Wait] = field(default_factory=list)
    takes: list[Take] = field(default_factory=list)
    events: list[Stored] = field(default_factory=list)
    result: Result | None = None

    def outcomes(self) -> list[Step]:
        """Everything that has an order number."""
        return outcomes(self.steps, self.takes, self.waits)

    @property
    def copied(self) -> int:
        """The number of the claim that closes what was kept of an older instance; 0: nothing was.

        What the owners of this instance record has higher epochs.
        """
        return self._closing.epoch if self._closing else 0

    @property
    def made_by(self) -> str:
        """Who made this instance of an older one, and why; empty if nobody did."""
        return self._closing.label if self._closing else ""

    @property
    def _closing(self) -> Epoch | None:
        by_hand = [claim for claim in self.epochs if not claim.worker]
        return max(by_hand, key=lambda claim: claim.epoch, default=None)

    def is_untouched(self) -> bool:
        """Whether nobody has worked on this instance since somebody made it of an older one."""
        above = {e.epoch for e in self.epochs} | self.recorded_epochs()
        return bool(self.copied) and self.copied == max(above) and self.result is None

    def waiting(self) -> list[Wait]:
        """Waits that have begun and have no outcome, those for a step's next attempt included."""
        over = {step.path for step in self.outcomes()}
        waits = [*self.waits, *(attempt.as_wait() for attempt in self.attempts)]
        return [wait for wait in waits if wait.path not in over]

    def standing(self) -> list[Wait]:
        """As `waiting`, without those that a decision has closed, as far as a record tells."""
        closed = self.closed()
        return [wait for wait in self.waiting() if wait.path not in closed]

    def closed(self) -> set[str]:
        """Paths of calls that have no outcome because a decision closed them."""
        return closed([*self.outcomes(), *self.waits], after=self.copied)

    def journal(self) -> Journal:
        if self.fresh:
            return Journal()
        journal = build(self.outcomes(), self.attempts, self.epochs, self.waits)
        journal.closed = self.closed()
        journal.tried = attempts.by_path(self.attempts, self.begins, self.beats)
        journal.groups = max((group.k for group in self.groups), default=0)
        return journal

    def all_epochs(self) -> set[int]:
        """Those of every owner that is known to have been."""
        return {claim.epoch for claim in self.epochs} | self.recorded_epochs()

    def recorded_epochs(self) -> set[int]:
        """The epochs in which anything was recorded."""
        kept = (self.steps, self.attempts, self.waits, self.takes)
        return {record.epoch for records in kept for record in records}


def decode_start(stored: Stored) -> Start:
    """The `start` record.

    Raises:
        CorruptFact: it is not one.
    """
    return _decode(stored, _start.decode)


async def read_cancel(store: Store, run: str, instance: str) -> Cancel | None:
    """What somebody asked for; None if nobody did.

    Raises:
        CorruptFact: it is not such a record.
    """
    stored = await store.read(names.cancel(run, instance))
    return None if stored is None else _decode(stored, _cancel.decode)


def decode_result(stored: Stored) -> Result:
    """The `result` record.

    Raises:
        CorruptFact: it is not one.
    """
    return _decode(stored, _result.decode)


def decode_undo(stored: Stored) -> Undo:
    """The registration of a step that is to be undone.

    Raises:
        CorruptFact: it is not one.
    """
    return _decode(stored, _undo.decode)


def decode_wait(stored: Stored) -> Wait:
    """The claim of a wait.

    Raises:
        CorruptFact: it is not one.
    """
    return _decode(stored, _wait.decode)


def decode_published(stored: Stored) -> Published:
    """A record of published progress.

    Raises:
        CorruptFact: it is not one.
    """
    return _decode(stored, _published.decode)


async def read_start(store: Store, run: str) -> Start | None:
    """The run's `start` alone; None if the id is unknown.

    Raises:
        CorruptFact: it is not one.
    """
    stored = await store.read(names.start(run))
    return None if stored is None else decode_start(stored)


async def load(store: Store, run: str, *, damaged: bool = False) -> Facts | None:
    """The facts of the run's present instance; None if there is no `start`.

    Args:
        damaged: pass over what cannot be read, but for `start`.

    Raises:
        CorruptFact: an object cannot be what its name says.
    """
    listed: list[Stored] = []
    stored_start: Stored | None = None
    start_name = names.start(run)
    async for stored in store.list(names.run_folder(run)):
        if stored.name == start_name:
            stored_start = stored
        else:
            listed.append(stored)
    if stored_start is None or stored_start.body is None:
        stored_start = await store.read(start_name)
    if stored_start is None:
        return None
    facts = Facts(decode_start(stored_start), fresh=_is_fresh(run, listed))
    await _fill(store, run, facts, listed, damaged=damaged)
    return facts


async def load_older(store: Store, run: str, start: Start) -> list[Facts]:
    """The facts of the instances that the run had before the one that `start` names.

    What cannot be read of them is passed over: they are over.
    """
    listed = [stored async for stored in store.list(names.run_folder(run))]
    parsed = [names.parse_fact(run, stored.name) for stored in listed]
    instances = {fact.instance for fact in parsed if fact is not None} - {start.instance}
    found = []
    for instance in sorted(instances):
        facts = Facts(msgspec.structs.replace(start, instance=instance), fresh=False)
        await _fill(store, run, facts, listed, damaged=True)
        found.append(facts)
    return found


async def _fill(
    store: Store, run: str, facts: Facts, listed: list[Stored], *, damaged: bool
) -> None:
    mine = names.instance_folder(run, facts.start.instance)
    listed = [s for s in listed if s.name.startswith(mine)]
    events = names.events_folder(run, facts.start.instance)
    facts.events = [s for s in listed if s.name.startswith(events)]
    rest = [s for s in listed if not s.name.startswith(events)]
    for stored in await _with_bodies(store, rest):
        with contextlib.suppress(CorruptFact) if damaged else contextlib.nullcontext():
            _add(facts, run, stored)


def _is_fresh(run: str, listed: list[Stored]) -> bool:
    facts = [names.parse_fact(run, stored.name) for stored in listed]
    return all(fact is not None and fact.kind in FROM_OUTSIDE for fact in facts)


def _add(facts: Facts, run: str, stored: Stored) -> None:
    fact = names.parse_fact(run, stored.name)
    kind = fact.kind if fact else ""
    match kind:
        case "groups":
            group = _decode(stored, _group.decode)
            facts.groups.append(group)
            facts.steps += group.outcomes()
        case "cancel":
            facts.cancel = _decode(stored, _cancel.decode)
        case "result":
            facts.result = _decode(stored, _result.decode)
        case _:
            add = _SEVERAL.get(kind)
            if add is None:
                raise CorruptFact(stored.name, "no object of that name belongs in a run's folder")
            add(facts, stored)


def _into(
    decoder: msgspec.json.Decoder[R], several: Callable[[Facts], list[R]]
) -> Callable[[Facts, Stored], None]:
    def add(facts: Facts, stored: Stored) -> None:
        several(facts).append(_decode(stored, decoder.decode))

    return add


_SEVERAL: dict[str, Callable[[Facts, Stored], None]] = {  # kinds of which a run has any number
    "steps": _into(_step, lambda facts: facts.steps),
    "attempts": _into(_attempt, lambda facts: facts.attempts),
    "beats": _into(_beat, lambda facts: facts.beats),
    "state": _into(_published, lambda facts: facts.published),
    "starts": _into(_begin, lambda facts: facts.begins),
    "undo": _into(_undo, lambda facts: facts.undos),
    "epochs": _into(_epoch, lambda facts: facts.epochs),
    "waits": _into(_wait, lambda facts: facts.waits),
    "takes": _into(_take, lambda facts: facts.takes),
}


async def _with_bodies(store: Store, listed: list[Stored]) -> list[Stored]:
    """The same objects, each with its body: the large ones are read, some at a time."""
    found = list(listed)

    async def fill(index: int) -> None:
        stored = await store.read(found[index].name)
        if stored is not None:
            found[index] = stored

    large = [i for i, stored in enumerate(found) if stored.body is None]
    if large:
        await map_in(None, fill, large, READS_AT_ONCE)
    return [stored for stored in found if stored.body is not None]


def _decode(stored: Stored, decode: Callable[[bytes], R]) -> R:
    try:
        return decode(stored.body or b"")
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        raise CorruptFact(stored.name, str(e)) from e
