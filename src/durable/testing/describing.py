"""The runs of a test's bucket as text: what a failed test shows, and why nothing goes on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar
from urllib.parse import unquote

import msgspec

from durable.protocol import names
from durable.protocol.records import Attempt, Attention, Group, Result, Start, Step, Take, Wait
from durable.store.memory import Bucket

S = TypeVar("S", bound=msgspec.Struct)

CUT = 200  # characters of one value


def describe(bucket: Bucket) -> str:
    """Every run with its state and its recorded calls, one line each."""
    lines = []
    for run, start in _runs(bucket):
        lines.append(f"run {run!r} of {start.workflow!r}: {_state(bucket, run, start)}")
        lines += [f"  {line}" for line in _calls(bucket, run, start)]
    return "\n".join(lines) or "no run was started"


def why_stuck(bucket: Bucket, in_flight: list[str]) -> str:
    """Why nothing goes on, for somebody who waits for it."""
    lines = ["what is waited for will never happen: no run can go on, and no timer is set."]
    if in_flight:
        lines = [
            "what is waited for will never happen: a body does not end, nothing else goes on.",
            *(f"  - {path}" for path in in_flight),
        ]
    states = [
        f"run {run!r} of {start.workflow!r} {_state(bucket, run, start)}"
        for run, start in _runs(bucket)
        if _result(bucket, run, start) is None
    ]
    return "\n".join([*lines, *(f"  - {state}" for state in states or ["every run is over"])])


# -- one run ---------------------------------------------------------------------------------------


def _runs(bucket: Bucket) -> Iterator[tuple[str, Start]]:
    for name in _under(bucket, "runs/"):
        if name.endswith("/start"):
            start = _record(bucket, name, Start)
            if start is not None and not start.tombstone:
                yield unquote(name.split("/")[1]), start


def _state(bucket: Bucket, run: str, start: Start) -> str:
    result = _result(bucket, run, start)
    if result is not None:
        said = _said(result.value, result.failure)
        return f"{result.status}{': ' if said else ''}{said}"
    hint = _record(bucket, names.attention(start.queue, run), Attention)
    if hint is not None:
        return f"needs attention: {hint.message}"
    waits = _facts(bucket, run, start, "waits", Wait)
    over = {step.path for step in _steps(bucket, run, start)}
    over |= {take.path for take in _facts(bucket, run, start, "takes", Take)}
    open_waits = [wait.path for wait in waits if wait.path not in over]
    return f"waits in {', '.join(open_waits)}" if open_waits else "is not over"


def _calls(bucket: Bucket, run: str, start: Start) -> Iterator[str]:
    steps = sorted(_steps(bucket, run, start), key=lambda step: (step.epoch, step.n))
    for step in steps:
        yield f"{step.path}: {step.outcome} {_said(step.value, step.failure)}".rstrip()
    done = {step.path for step in steps}
    for attempt in _facts(bucket, run, start, "attempts", Attempt):
        if attempt.path not in done:
            yield f"{attempt.path}: attempt {attempt.attempt} failed, {attempt.failure.message}"


def _steps(bucket: Bucket, run: str, start: Start) -> Iterator[Step]:
    yield from _facts(bucket, run, start, "steps", Step)
    for group in _facts(bucket, run, start, "groups", Group):
        yield from group.steps


def _said(value: msgspec.Raw | msgspec.UnsetType, failure: object) -> str:
    if failure is not None:
        return f"{getattr(failure, 'type', '')}: {getattr(failure, 'message', '')}"[:CUT]
    return "" if isinstance(value, msgspec.UnsetType) else bytes(value).decode()[:CUT]


def _result(bucket: Bucket, run: str, start: Start) -> Result | None:
    return _record(bucket, names.result(run, start.instance), Result)


def _facts(bucket: Bucket, run: str, start: Start, kind: str, record: type[S]) -> Iterator[S]:
    for name in _under(bucket, f"{names.instance_folder(run, start.instance)}{kind}/"):
        found = _record(bucket, name, record)
        if found is not None:
            yield found


# -- the bucket ------------------------------------------------------------------------------------


def _under(bucket: Bucket, prefix: str) -> list[str]:
    with bucket.lock:
        names_from = bucket.names.since(prefix)
        return [name for name in names_from if name.startswith(prefix)]


def _record(bucket: Bucket, name: str, kind: type[S]) -> S | None:
    stored = bucket.peek(name)
    if stored is None or stored.body is None:
        return None
    try:
        return msgspec.json.decode(stored.body, type=kind)
    except msgspec.MsgspecError:  # a test may damage what it likes
        return None
