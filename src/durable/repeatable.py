"""`now`, `random`, `uuid` and `patched`: time, chance and change that are the same on replay.

They follow from what is recorded, so they cost nothing and wait for nothing; sync code calls them
as async code does. Outside a workflow function, also in a step's body, they are the machine's own
clock and chance.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from uuid import NAMESPACE_OID, UUID, uuid5

from durable.protocol.names import check_id
from durable.runtime.scopes import Scope, calling_scope, here
from durable.system import System

_FLOAT_BITS = 53


def now() -> datetime:
    """The time of the workflow: when the last outcome it has received here was recorded.

    Of the scope that this is called in, or one around it; at first when the run was started. It
    never runs backwards. By the store's clock, in UTC.
    """
    place = here.get()
    seconds = place.now() if isinstance(place, Scope) else System().wall()
    return datetime.fromtimestamp(seconds, UTC)


def random(key: str | None = None) -> float:
    """A random number from 0 to below 1, of this run and this place in its code.

    Seed a generator with it for more: `random.Random(durable.random())`. Not for secrets.

    Args:
        key: names the place instead of counting the calls before, so that adding one elsewhere
            changes nothing here. Once in a scope.

    Raises:
        NotInWorkflow: in a task that does not own the scope.
        InvalidId: the key is empty, too long or has control characters.
    """
    place = _place("random", key)
    if place is None:
        return System().uniform(0, 1)
    digest = hashlib.sha256(place.encode()).digest()
    return (int.from_bytes(digest[:8]) >> (64 - _FLOAT_BITS)) / (1 << _FLOAT_BITS)


def uuid(key: str | None = None) -> UUID:
    """A UUID of this run and this place in its code, and of no other.

    Args:
        key: as for `random`.

    Raises:
        NotInWorkflow: in a task that does not own the scope.
        InvalidId: as for `random`.
    """
    return uuid5(NAMESPACE_OID, _place("uuid", key) or System().token())


def patched(id: str, *, each_call: bool = False) -> bool:
    """Whether this run follows new code here, in a workflow that was changed under way.

        if durable.patched("new-tax"):
            tax = await new_tax(order)
        else:
            tax = await old_tax(order)

    Runs that were past this place when the code was changed say no, all others yes. The answer is
    durable, and the same in the whole run: a loop that began with the old code ends with it.

    Args:
        id: of the change.
        each_call: decide anew at each call, so that a loop that began with the old code goes on
            with the new where its record ends.

    Raises:
        NotInWorkflow: in a task that does not own the scope.
        InvalidId: the id is empty, too long or has control characters.
    """
    check_id(id, what="id of a change")
    scope = calling_scope("patched")
    if scope is None:
        return True
    path = _reserve(scope, f"patched:{id}", None) if each_call else ""
    return scope.execution.patches.decide(id, path)


def _place(word: str, key: str | None) -> str | None:
    """What tells this place in the code of this run from all others; None outside one."""
    if key is not None:
        check_id(key, what="key")
    scope = calling_scope(word)
    if scope is None:
        return None
    return f"{scope.execution.chance.instance}\n{_reserve(scope, word, key)}"


def _reserve(scope: Scope, word: str, key: str | None) -> str:
    path = scope.reserve(f"durable.{word}", key)  # the dot keeps it apart from a step's name
    scope.finished(path)
    return path
