"""Whether what is recorded of a call fits the call that the code makes now.

If not, the run needs attention: going on would mix the record of one program with another.
"""

from __future__ import annotations

from typing import Any

import msgspec

from durable.protocol import digests, values
from durable.protocol.records import Step, Wait
from durable.runtime.calls import Call
from durable.runtime.closing import Attention

MISFIT_HINT = "give the new field a default, or bring back the old annotation"
SHOWN_MAX = 200  # characters of a recorded value


def drift(run_id: str, call: Call[Any], step: Step | Wait | None) -> Attention | None:
    """What to say if another call, or this one with other arguments, is recorded in its place.

    Args:
        step: what is recorded of the call: its outcome, or else that its wait has begun.
    """
    if step is None:
        return None
    digest = step.digest if isinstance(step, Step) else ""
    by_hand = isinstance(step, Step) and step.note  # whoever wrote it knew no more than the path
    if step.kind != call.kind and not by_hand:
        was, now = f"{step.kind} {step.name!r}", f"{call.kind} {call.name!r} there"
    elif step.name != call.name:
        was, now = f"{step.name!r}", f"{call.name!r} there"
    elif _digests_differ(digest, call.digest):
        was, now = f"{step.name!r}", "it with other arguments"
    else:
        return None
    return Attention(
        "drift",
        f"run {run_id!r} recorded call {call.path!r} as {was}, but the code now calls {now}",
        hint="bring back the code that recorded it, or restart the run under a new id; "
        "`durable replay` shows where the two part",
        path=call.path,
        recorded=f"{step.name} {digest}".strip(),
        asked=f"{call.name} {call.digest}".strip(),
    )


def _digests_differ(recorded: str, asked: str) -> bool:
    return bool(recorded and asked) and recorded != asked and digests.comparable(recorded, asked)


def decoded(call: Call[Any], step: Step) -> object:
    """The recorded value as the call's return annotation says; None if there is none.

    Raises:
        values.Undecodable: it does not fit the annotation.
    """
    if isinstance(step.value, msgspec.UnsetType):
        return None
    return values.decode(step.value, call.returns)


def undecodable(run_id: str, call: Call[Any], step: Step, error: values.Undecodable) -> Attention:
    """What to say of a recorded value that does not fit the return annotation."""
    return Attention(
        "undecodable",
        f"run {run_id!r} recorded a value for {call.path!r} that does not fit the return "
        f"annotation of {step.name!r}: {error}",
        hint=MISFIT_HINT,
        path=call.path,
        recorded=_shown(step.value),
        asked=str(getattr(call.returns, "__qualname__", call.returns)),
    )


def _shown(value: msgspec.Raw | msgspec.UnsetType) -> str:
    if isinstance(value, msgspec.UnsetType):
        return ""
    text = bytes(value).decode()
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."
