"""The order of replay when records of dead owners land late, as a model of all interleavings.

One run makes some durable calls at once. A line of owners executes it: each lists the records,
claims the next epoch with a summary of what it saw, hands over what it found in the journal's
order, then runs the bodies of the rest, whose records travel. An owner may die at any moment; of
what it had under way each record may land at any later moment, or never. An owner whose record
is refused, because a late one was there first, hands nothing of it over and ends.

What must hold (S9): the order in which any owner hands outcomes over begins or continues the
order of every other.

A `Rule` is the order of the journal. `JOURNAL` is the code's own; the others are smaller, and
each of them is wrong: `test_late_records` has the shortest story of how.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

from durable.protocol import journal
from durable.protocol.records import Epoch, Seen, Step


class Size(NamedTuple):
    """How large a world is searched: which calls the run makes, how many owners it has."""

    calls: str
    owners: int


class Record(NamedTuple):
    """The outcome of a call, made by the owner of an epoch, as its n-th."""

    path: str
    epoch: int
    n: int

    def __str__(self) -> str:
        return f"{self.path} (epoch {self.epoch}, n {self.n})"


class Claim(NamedTuple):
    """An epoch, and of each earlier one what its owner's list contained."""

    epoch: int
    seen: tuple[tuple[int, int, tuple[int, ...]], ...]


class Owner(NamedTuple):
    """Who executes now.

    Attributes:
        epoch: 0 until it is claimed.
        listed: what its list contained.
        log: the outcomes handed over, in order.
        issued: its own records in the order of n; `landed`: how many reached the store, by path;
            `known`: those whose answer arrived.
    """

    epoch: int
    listed: frozenset[Record]
    log: tuple[Record, ...] = ()
    issued: tuple[Record, ...] = ()
    landed: frozenset[Record] = frozenset()
    known: frozenset[Record] = frozenset()


class State(NamedTuple):
    """Everything.

    Attributes:
        late: records of the dead that are still under way.
        longest: the longest order in which an owner has handed over.
        parted: two orders of which neither begins the other.
    """

    store: frozenset[Record] = frozenset()
    claims: tuple[Claim, ...] = ()
    late: frozenset[Record] = frozenset()
    owner: Owner | None = None
    owners: int = 0
    longest: tuple[Record, ...] = ()
    parted: tuple[tuple[Record, ...], tuple[Record, ...]] | None = None


Rule = Callable[[frozenset[Record], tuple[Claim, ...]], tuple[Record, ...]]

START = State()


# -- rules ----------------------------------------------------------------------------------------


@functools.cache
def journal_order(records: frozenset[Record], claims: tuple[Claim, ...]) -> tuple[Record, ...]:
    """The code's own."""
    steps = [
        Step(path=r.path, name="", outcome="value", epoch=r.epoch, n=r.n, nonce="x", time=0.0)
        for r in records
    ]
    epochs = [
        Epoch(
            epoch=c.epoch, worker="", label="", why="takeover", nonce="", time=0.0,
            seen={str(e): Seen(highest, list(holes)) for e, highest, holes in c.seen},
        )
        for c in claims
    ]  # fmt: skip
    made = journal.build(steps, [], epochs)
    return tuple(Record(step.path, step.epoch, step.n) for step in made.order)


def by_epoch_and_number(
    records: frozenset[Record], claims: tuple[Claim, ...]
) -> tuple[Record, ...]:
    """Claims say nothing: records sort by (epoch, n)."""
    return tuple(sorted(records, key=lambda r: (r.epoch, r.n)))


def oldest_owner_first(records: frozenset[Record], claims: tuple[Claim, ...]) -> tuple[Record, ...]:
    """What a list saw for the first time sorts by (epoch, n)."""
    return tuple(sorted(records, key=lambda r: (_first_seen(r, claims), r.epoch, r.n)))


def without_holes(records: frozenset[Record], claims: tuple[Claim, ...]) -> tuple[Record, ...]:
    """Claims hold the highest number of each epoch, not what was missing below it."""
    bare = tuple(Claim(c.epoch, tuple((e, high, ()) for e, high, _ in c.seen)) for c in claims)
    return tuple(sorted(records, key=lambda r: (_first_seen(r, bare), -r.epoch, r.n)))


def youngest_owner_first(
    records: frozenset[Record], claims: tuple[Claim, ...]
) -> tuple[Record, ...]:
    """Claims say nothing, and what is late comes last: (epoch descending, n)."""
    return tuple(sorted(records, key=lambda r: (-r.epoch, r.n)))


def only_the_last_claim(
    records: frozenset[Record], claims: tuple[Claim, ...]
) -> tuple[Record, ...]:
    """Each claim replaces those before it: only the last tells what was seen."""
    return tuple(sorted(records, key=lambda r: (_first_seen(r, claims[-1:]), -r.epoch, r.n)))


def _first_seen(record: Record, claims: tuple[Claim, ...]) -> int:
    for claim in claims:
        for epoch, highest, holes in claim.seen:
            if epoch == record.epoch and record.n <= highest and record.n not in holes:
                return claim.epoch
    return (claims[-1].epoch if claims else 1) + 1


JOURNAL: Rule = journal_order
SMALLER: list[Rule] = [
    by_epoch_and_number, oldest_owner_first, without_holes, youngest_owner_first,
    only_the_last_claim,
]  # fmt: skip


# -- what can happen ------------------------------------------------------------------------------


def steps(rule: Rule, size: Size) -> Callable[[State], Iterator[tuple[str, State]]]:
    """The transitions, under a rule."""

    def after(state: State) -> Iterator[tuple[str, State]]:
        for record in state.late:
            yield _lands_late(state, record)
        owner = state.owner
        if owner is None:
            if state.owners < size.owners:
                yield _lists(state)
        elif owner.epoch == 0:
            yield _claims(state, owner, rule)
        elif state.owners < size.owners:  # of the last only the replay matters
            yield from _executes(state, owner, size.calls)
            yield f"the owner of epoch {owner.epoch} dies", _ended(state, owner)

    return after


def _lands_late(state: State, record: Record) -> tuple[str, State]:
    store = state.store
    if record.path not in {r.path for r in store}:
        store |= {record}
    return f"{record} lands late", state._replace(store=store, late=state.late - {record})


def _lists(state: State) -> tuple[str, State]:
    listed = ", ".join(map(str, sorted(state.store))) or "nothing"
    owner = Owner(0, state.store)
    return f"a new owner lists {listed}", state._replace(owner=owner, owners=state.owners + 1)


def _claims(state: State, owner: Owner, rule: Rule) -> tuple[str, State]:
    epoch = state.owners
    log = rule(owner.listed, state.claims)
    claims = state.claims
    if epoch > 1:
        claims += (Claim(epoch, summary(owner.listed)),)
    after = state._replace(owner=owner._replace(epoch=epoch, log=log), claims=claims)
    told = ", ".join(r.path for r in log) or "nothing"
    return f"it claims epoch {epoch} and hands over {told}", _told(after, log)


def summary(records: frozenset[Record]) -> tuple[tuple[int, int, tuple[int, ...]], ...]:
    """What the code writes into a claim."""
    made = journal.seen(
        Step(path=r.path, name="", outcome="value", epoch=r.epoch, n=r.n, nonce="x", time=0.0)
        for r in records
    )
    return tuple(sorted((int(e), s.highest, tuple(s.holes)) for e, s in made.items()))


def _executes(state: State, owner: Owner, calls: str) -> Iterator[tuple[str, State]]:
    done = {r.path for r in (*owner.listed, *owner.issued)}
    for path in calls:
        if path not in done:
            record = Record(path, owner.epoch, len(owner.issued) + 1)
            issued = owner._replace(issued=(*owner.issued, record))
            yield f"it sends {record}", state._replace(owner=issued)
    for record in owner.issued:
        if record not in owner.landed:
            yield _reaches_the_store(state, owner, record)
        elif record not in owner.known:
            known = owner.known | {record}
            heard = owner._replace(known=known, log=_handed_over(owner, known))
            after = _told(state._replace(owner=heard), heard.log)
            yield f"it hears that {record} is recorded", after


def _reaches_the_store(state: State, owner: Owner, record: Record) -> tuple[str, State]:
    if record.path in {r.path for r in state.store}:
        return f"{record} is refused: the owner ends", _ended(state, owner, refused=record)
    landed = owner._replace(landed=owner.landed | {record})
    return f"{record} lands", state._replace(store=state.store | {record}, owner=landed)


def _handed_over(owner: Owner, known: frozenset[Record]) -> tuple[Record, ...]:
    """An outcome waits until every lower number of this owner is known."""
    log = owner.log
    for record in owner.issued[len(log) - len(owner.listed) :]:
        if record not in known:
            break
        log += (record,)
    return log


def _ended(state: State, owner: Owner, refused: Record | None = None) -> State:
    under_way = set(owner.issued) - owner.landed - ({refused} if refused else set())
    return state._replace(owner=None, late=state.late | under_way)


def _told(state: State, log: tuple[Record, ...]) -> State:
    shorter, longer = sorted((log, state.longest), key=len)
    if longer[: len(shorter)] != shorter:
        return state._replace(parted=(state.longest, log))
    return state._replace(longest=longer)


def wrong(state: State) -> str:
    """What is wrong with a state."""
    if state.parted is None:
        return ""
    one, two = (" ".join(r.path for r in log) for log in state.parted)
    return f"one owner handed over {one}, another {two}"
