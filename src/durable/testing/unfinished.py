"""What a bucket says of the runs that are not over: why none goes on."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from durable.protocol.records import Attention, Start
from durable.store.memory import Bucket


def why_stuck(bucket: Bucket, in_flight: list[str]) -> str:
    """Why nothing goes on, for somebody who waits for it."""
    lines = ["what is waited for will never happen: no run can go on, and no timer is set."]
    if in_flight:
        lines = ["what is waited for will never happen: a body does not end, nothing else goes on."]
        lines += [f"  - {path}" for path in in_flight]
    lines += [f"  - {text}" for text in _unfinished(bucket)]
    if len(lines) == 1:
        lines.append("  - every run is over")
    return "\n".join(lines)


def _unfinished(bucket: Bucket) -> Iterator[str]:
    for name in _under(bucket, "runs/"):
        run = name.split("/")[1]
        if not name.endswith("/start"):
            continue
        start = msgspec.json.decode(_body(bucket, name), type=Start)
        folder = f"runs/{run}/{start.instance}/"
        if bucket.peek(f"{folder}result") is not None:
            continue
        yield f"run {run!r} of {start.workflow!r}{_state(bucket, run, folder)}"


def _state(bucket: Bucket, run: str, folder: str) -> str:
    for name in _under(bucket, "attention/"):
        if name.endswith(f"/{run}"):
            hint = msgspec.json.decode(_body(bucket, name), type=Attention)
            return f" needs attention: {hint.message}"
    waits = [name.removeprefix(f"{folder}waits/") for name in _under(bucket, f"{folder}waits/")]
    return f" waits in {', '.join(waits)}" if waits else " is not over"


def _under(bucket: Bucket, prefix: str) -> Iterator[str]:
    with bucket.lock:
        for name in bucket.names.since(prefix):
            if not name.startswith(prefix):
                return
            yield name


def _body(bucket: Bucket, name: str) -> bytes:
    stored = bucket.peek(name)
    return b"{}" if stored is None or stored.body is None else stored.body
