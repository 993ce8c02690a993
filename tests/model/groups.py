"""Outcomes that are recorded together and later, as a model of all interleavings.

One run makes grouped calls (a, and b once it has a's outcome) and ordinary ones: X at any time, Y
once the grouped ones have outcomes. A grouped outcome is handed over when its body has ended; it
is recorded by the next group of the chain. The value of an outcome is who made it: another owner
makes another value. Owners die at any moment, and of what they had under way each create may land
at any later moment, or never.

Somebody else learns what the run's code has seen when the body of an ordinary call begins, and
when a record of an ordinary call lands: it may be what the code has just caused. What must hold:

- the orders in which outcomes had been handed over at such moments, values included, begin or
  continue each other (P1, S9);
- whoever reads the store is never shown two outcomes of one call (P1).

`Rules()` are the code's own; each of the others leaves one out, and is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.model.late_records import JOURNAL, Claim, Record, Rule, Size, summary

GROUPED = "ab"
AFTER = {"b": "a", "Y": GROUPED}  # what a call needs the outcomes of


class Rules(NamedTuple):
    """What an owner minds.

    Attributes:
        order: of the journal.
        before_bodies: a group is recorded before an ordinary body begins.
        before_records: and before an ordinary record with a higher number is sent.
        under_way: how many groups may be on their way at once.
        refused_ends: an owner whose place in the chain is taken ends; else it takes the next.
    """

    order: Rule = JOURNAL
    before_bodies: bool = True
    before_records: bool = True
    under_way: int = 1
    refused_ends: bool = True


class Sent(NamedTuple):
    """A create: the group at this place of the chain, or at 0 the record of an ordinary call.

    `basis`: what the code had been handed when the call's body had ended.
    """

    place: int
    records: tuple[Record, ...]
    basis: tuple[Record, ...] = ()

    def __str__(self) -> str:
        held = ", ".join(map(str, self.records))
        return f"group {self.place} of {held}" if self.place else held


class Owner(NamedTuple):
    """Who executes now.

    Attributes:
        epoch: 0 until it is claimed.
        listed: what its list contained; `place`: of the last group in it, later of its own.
        log: the outcomes handed over, in order.
        begun: ordinary calls whose bodies run.
        issued: its own outcomes in the order of n, `known` those that may be handed over.
        safe: grouped outcomes of which it knows that they are recorded.
        sent: what is on its way; `landed` what has landed of it, and it has not heard.
        basis: of the ordinary outcomes issued and not sent.
    """

    epoch: int
    listed: frozenset[Record]
    place: int
    log: tuple[Record, ...] = ()
    begun: frozenset[str] = frozenset()
    issued: tuple[Record, ...] = ()
    known: frozenset[Record] = frozenset()
    safe: frozenset[Record] = frozenset()
    grouped: frozenset[Record] = frozenset()  # in some group that was sent
    sent: frozenset[Sent] = frozenset()
    landed: frozenset[Sent] = frozenset()
    basis: frozenset[Sent] = frozenset()


class State(NamedTuple):
    """Everything. `late`: creates of the dead that are under way; `shown`: to readers so far."""

    alone: frozenset[Record] = frozenset()
    groups: frozenset[Sent] = frozenset()
    claims: tuple[Claim, ...] = ()
    late: frozenset[Sent] = frozenset()
    owner: Owner | None = None
    owners: int = 0
    longest: tuple[Record, ...] = ()
    shown: frozenset[Record] = frozenset()
    wrong: str = ""


START = State()


def wrong(state: State) -> str:
    """What is wrong with a state."""
    return state.wrong


def steps(rules: Rules, size: Size) -> Callable[[State], Iterator[tuple[str, State]]]:
    """The transitions."""

    def after(state: State) -> Iterator[tuple[str, State]]:
        for sent in state.late:
            there = state._replace(late=state.late - {sent})
            yield f"{sent} lands late", _landed(there, sent, rules) or there
        owner = state.owner
        if owner is None:
            if state.owners < size.owners:
                yield _lists(state)
        elif owner.epoch == 0:
            yield _claims(state, owner, rules)
        elif state.owners < size.owners:  # of the last only the replay matters
            yield from _calls(state, owner, rules, size.calls)
            yield from _sends(state, owner, rules)
            yield from _hears(state, owner, rules)
            yield f"the owner of epoch {owner.epoch} dies", _ended(state, owner)

    return after


# -- owners come and go ---------------------------------------------------------------------------


def _recorded(state: State) -> frozenset[Record]:
    return state.alone | {record for group in state.groups for record in group.records}


def _lists(state: State) -> tuple[str, State]:
    listed = _recorded(state)
    owner = Owner(0, listed, max((group.place for group in state.groups), default=0))
    told = ", ".join(map(str, sorted(listed))) or "nothing"
    return f"a new owner lists {told}", state._replace(owner=owner, owners=state.owners + 1)


def _claims(state: State, owner: Owner, rules: Rules) -> tuple[str, State]:
    epoch = state.owners
    log = _in_order(owner.listed, state.claims, rules)
    claims = state.claims
    if epoch > 1:
        claims += (Claim(epoch, summary(owner.listed)),)
    begun = owner._replace(epoch=epoch, log=log, safe=owner.listed)
    after = _seen(state._replace(owner=begun, claims=claims), log)
    return f"it claims epoch {epoch} and hands over {_paths(log)}", after


def _in_order(
    records: frozenset[Record], claims: tuple[Claim, ...], rules: Rules
) -> tuple[Record, ...]:
    """The journal: of each call the outcome that comes first."""
    first: dict[str, Record] = {}
    for record in rules.order(records, claims):
        first.setdefault(record.path, record)
    return tuple(first.values())


def _ended(state: State, owner: Owner, refused: Sent | None = None) -> State:
    late = state.late | {sent for sent in owner.sent if sent != refused}
    return state._replace(owner=None, late=late)


# -- what an owner does ---------------------------------------------------------------------------


def _calls(state: State, owner: Owner, rules: Rules, calls: str) -> Iterator[tuple[str, State]]:
    done = {record.path for record in (*owner.listed, *owner.issued)}
    heard = {record.path for record in owner.log}
    for path in calls:
        needs = set(AFTER.get(path, "")) & set(calls)
        if path in done or not needs <= heard:
            continue
        if path in GROUPED or path in owner.begun:
            yield _comes_to(state, owner, path)
        elif not rules.before_bodies or _is_safe(owner, owner.log):
            begun = state._replace(owner=owner._replace(begun=owner.begun | {path}))
            yield f"the body of {path} begins, after {_paths(owner.log)}", _seen(begun, owner.log)


def _comes_to(state: State, owner: Owner, path: str) -> tuple[str, State]:
    record = Record(path, owner.epoch, len(owner.issued) + 1)
    after = owner._replace(issued=(*owner.issued, record), begun=owner.begun - {path})
    if path in GROUPED:
        after = _handed_over(after, frozenset({record}))
    else:
        after = after._replace(basis=owner.basis | {Sent(0, (record,), owner.log)})
    return f"it comes to {record}", state._replace(owner=after)


def _is_safe(owner: Owner, records: tuple[Record, ...]) -> bool:
    return all(record in owner.safe for record in records if record.path in GROUPED)


def _sends(state: State, owner: Owner, rules: Rules) -> Iterator[tuple[str, State]]:
    for made in owner.basis:
        before = owner.issued[: made.records[0].n - 1]
        if not rules.before_records or _is_safe(owner, before):
            after = owner._replace(basis=owner.basis - {made}, sent=owner.sent | {made})
            yield f"it sends {made}", state._replace(owner=after)
    gathered = [r for r in owner.issued if r.path in GROUPED and r not in owner.grouped]
    under_way = [sent for sent in (*owner.sent, *owner.landed) if sent.place]
    if gathered and len(under_way) < rules.under_way:
        group = Sent(owner.place + 1, tuple(gathered))
        after = owner._replace(
            place=group.place, sent=owner.sent | {group}, grouped=owner.grouped | set(gathered)
        )
        yield f"it sends {group}", state._replace(owner=after)


def _hears(state: State, owner: Owner, rules: Rules) -> Iterator[tuple[str, State]]:
    for sent in owner.sent:
        landed = _landed(state, sent, rules)
        if landed is not None:
            after = owner._replace(sent=owner.sent - {sent}, landed=owner.landed | {sent})
            yield f"{sent} lands", landed._replace(owner=after)
        elif rules.refused_ends or not sent.place:
            yield f"{sent} is refused: the owner ends", _ended(state, owner, sent)
        else:
            again = sent._replace(place=sent.place + 1)
            after = owner._replace(sent=owner.sent - {sent} | {again}, place=again.place)
            yield f"{sent} is refused: it tries the next place", state._replace(owner=after)
    for sent in owner.landed:
        heard = owner._replace(landed=owner.landed - {sent}, safe=owner.safe | set(sent.records))
        after = _handed_over(heard, frozenset(sent.records))
        yield f"it hears that {sent} is recorded", state._replace(owner=after)


def _handed_over(owner: Owner, known: frozenset[Record]) -> Owner:
    """An outcome waits until every lower number of this owner is known."""
    known |= owner.known
    log = owner.log
    for record in owner.issued[len(log) - len(owner.listed) :]:
        if record not in known:
            break
        log += (record,)
    return owner._replace(known=known, log=log)


# -- what others see ------------------------------------------------------------------------------


def _landed(state: State, sent: Sent, rules: Rules) -> State | None:
    """None: something is there already."""
    if sent.place:
        if sent.place in {group.place for group in state.groups}:
            return None
        state = state._replace(groups=state.groups | {sent})
    else:
        record = sent.records[0]
        if record.path in {there.path for there in state.alone}:
            return None
        state = _seen(state._replace(alone=state.alone | {record}), sent.basis)
    shown = frozenset(_in_order(_recorded(state), state.claims, rules))
    for record in shown:
        other = {seen for seen in state.shown if seen.path == record.path} - {record}
        if other:
            return state._replace(wrong=f"readers were shown {other.pop()}, and then {record}")
    return state._replace(shown=state.shown | shown)


def _seen(state: State, log: tuple[Record, ...]) -> State:
    """Somebody has learned what the code was handed so far."""
    shorter, longer = sorted((log, state.longest), key=len)
    if longer[: len(shorter)] != shorter:
        one, two = _told(state.longest), _told(log)
        return state._replace(wrong=f"something follows from {one}, something else from {two}")
    return state._replace(longest=longer)


def _paths(log: tuple[Record, ...]) -> str:
    return " ".join(record.path for record in log) or "nothing"


def _told(log: tuple[Record, ...]) -> str:
    return ", ".join(map(str, log)) or "nothing"
