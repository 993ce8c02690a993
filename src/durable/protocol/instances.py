"""What a new instance of a run keeps of an old one's record.

Records keep their order numbers and stay byte for byte what they were, so they may be copied on
the store's side; what is left out leaves a hole, which the order of replay does not mind (see
`durable.protocol.journal`). An epoch claim that closes the copy says who made the new instance
and why. It also keeps epochs rising under one run id, as outside systems that compare them expect.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

import msgspec

from durable.errors import NotFound
from durable.protocol.journal import seen
from durable.protocol.records import Epoch, Group, Step, Take

UNDO = "undo"  # the kind of the records of undo actions


def successes(steps: Iterable[Step]) -> set[str]:
    """Paths of the calls that a retry keeps: those that gave a value and were not undone.

    What a cancelled run did to clean up is not kept: at its end the retry cleans up again.
    """
    found = list(steps)
    undone = _undone(found)
    return {
        step.path
        for step in found
        if step.outcome == "value"
        and step.kind != UNDO
        and not step.cleanup
        and step.path not in undone
    }


def _undone(steps: Iterable[Step]) -> set[str]:
    return {step.path.removeprefix(f"{UNDO}/") for step in steps if step.kind == UNDO}


def renumbered(takes: Iterable[Take], kept: Collection[str]) -> list[Take]:
    """The takes of the kept waits, as the unbroken chain that an instance's inbox is."""
    chain = sorted((take for take in takes if take.path in kept), key=lambda take: take.k)
    return [msgspec.structs.replace(take, k=k) for k, take in enumerate(chain, 1)]


def regrouped(groups: Iterable[Group], kept: Collection[str]) -> list[Group]:
    """What the groups hold of the kept calls, as the unbroken chain that groups are."""
    chain = [
        msgspec.structs.replace(group, steps=[step for step in group.steps if step.path in kept])
        for group in sorted(groups, key=lambda group: group.k)
    ]
    return [
        msgspec.structs.replace(group, k=k)
        for k, group in enumerate((group for group in chain if group.steps), 1)
    ]


class Past(NamedTuple):
    """What a run has recorded before a call.

    Attributes:
        paths: of the calls.
        until: when that call was recorded, in store time.
    """

    paths: set[str]
    until: float


def before(order: Iterable[Step], call: str, run: str) -> Past:
    """What was recorded before `call`: a path, or a step's name. What was undone is left out.

    Raises:
        NotFound: the run has recorded no such call.
    """
    found, paths = list(order), set[str]()
    for step in found:
        if call in {step.path, step.name}:
            return Past(paths - _undone(found), step.time)
        paths.add(step.path)
    raise NotFound(
        f"run {run!r} has recorded no call {call!r}",
        hint=f"`durable show {run}` lists its calls",
        run=run,
    )


def closing_number(epochs: Collection[int]) -> int:
    """The number of the claim that stands behind a copy; see `closing_epoch`."""
    return max(epochs, default=1) + 1


def closing_epoch(
    epochs: Collection[int],
    kept: Iterable[Step],
    *,
    said: str,
    nonce: str,
    now: float,
    patches: Collection[str] = (),
) -> Epoch:
    """The claim that stands behind what was copied: nobody's, but higher than all before.

    Args:
        epochs: the numbers of the old instance's claims; without any, its owner's was 1.
        said: who made the new instance and why.
        patches: what `patched` has said yes to; records that are left out may have told it.
    """
    return Epoch(
        epoch=closing_number(epochs), worker="", label=said, why="wake", nonce=nonce, time=now,
        seen=seen(kept), patches=sorted(patches),
    )  # fmt: skip
