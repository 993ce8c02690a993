"""The children of a run that somebody retries, restarts, forks or purges.

The record of a child's start names one instance of it, whose outcome never changes. So a new
instance of the parent keeps it only if that outcome is of use, or is still to come to it: else
the child is started anew. Whatever of the old instance's children nobody keeps is cancelled.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from durable.protocol import names, values
from durable.protocol.records import Result
from durable.runtime.children import Started, cancel_open, owned_in, unsure_in
from durable.runtime.facts import Facts, decode_result
from durable.store import Store

Keeps = Callable[[Started, Result | None], bool]


def for_retry(child: Started, result: Result | None) -> bool:
    """A child that gave no value is made again, unless it goes on by itself."""
    if child.shared:
        return True  # what was asked for is asked for
    if result is None:
        return not child.owned  # an owned one ends with its parent's old instance
    return result.status == "completed" and result.skipped is None and result.joined is None


def for_fork(child: Started, result: Result | None) -> bool:
    """A child that is under way wakes its own parent at its end, and no other run."""
    return child.shared or result is not None


async def kept(store: Store, facts: Facts, paths: Collection[str], keeps: Keeps) -> set[str]:
    """Those of the paths that stay, now that the children are looked at."""
    left_out = {
        path
        for path, child in started(facts).items()
        if path in paths and not keeps(child, await _result(store, child))
    }
    return set(paths) - left_out


def waited_for(facts: Facts, path: str) -> str:
    """The id of the child whose failure is recorded at this path; empty if none is."""
    for step in facts.steps:
        if step.path == path and step.kind == "child" and step.failure is not None:
            run = step.failure.attributes.get("run")
            said = None if run is None else values.decode(run)
            return said if isinstance(said, str) else ""
    return ""


async def cancel(store: Store, run: str, facts: Facts, kept: Collection[Started] = ()) -> None:
    """This instance is over, and perhaps no worker came to see to its owned children.

    Args:
        kept: children that a new instance has taken over.
    """
    known = started(facts)
    steps = [step for step in facts.steps if known.get(step.path) not in kept]
    instance = facts.start.instance
    owned, unsure = owned_in(steps), unsure_in(run, instance, steps)
    await cancel_open(store, run, instance, owned, unsure)


def started(facts: Facts) -> dict[str, Started]:
    """The children that this instance has started, by the path of the call."""
    found: dict[str, Started] = {}
    for step in facts.steps:
        if step.kind == "start" and isinstance(step.value, msgspec.Raw):
            child = values.decode(step.value, Started)
            assert isinstance(child, Started)
            found[step.path] = child
    return found


async def _result(store: Store, child: Started) -> Result | None:
    stored = await store.read(names.result(child.run, child.instance))
    return None if stored is None else decode_result(stored)
