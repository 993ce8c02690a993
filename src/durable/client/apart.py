"""A replay in a thread with an event loop of its own, which is left behind if need be.

Code may block its event loop, or swallow every cancellation. A worker ends its process then; who
compares many runs goes on with the next.
"""

from __future__ import annotations

import contextvars
import threading
from contextlib import suppress
from dataclasses import replace

import anyio

from durable.client.replaying import LIMIT, Comparison, Replay, Watch
from durable.runtime.definitions import WorkflowDefinition
from durable.runtime.facts import Facts
from durable.runtime.turns import waker
from durable.store import Store

GRACE = 1.0  # seconds beyond the limit, which the replay's own event loop keeps if it can


async def compare_apart(
    store: Store,
    run: str,
    facts: Facts,
    definition: WorkflowDefinition,
    *,
    watch: Watch = lambda progress: True,
    limit: float = LIMIT,
) -> Replay:
    """As `replaying.compare`; it returns even if the code never does."""
    comparison = Comparison(store, run, facts, definition, watch=watch, limit=limit)
    answered, wake = anyio.Event(), waker()
    errors: list[BaseException] = []

    def tell() -> None:
        with suppress(RuntimeError):  # that event loop has ended, and whoever waited in it
            wake(answered.set)

    def work() -> None:
        try:
            anyio.run(comparison.run, tell)
        except BaseException as e:  # noqa: BLE001  # whoever waits for it is told
            errors.append(e)
            tell()

    inside = contextvars.Context()  # this one says that an event loop runs here
    threading.Thread(target=inside.run, args=(work,), name=f"replay of {run}", daemon=True).start()
    with anyio.move_on_after(limit + GRACE) as waiting:
        await answered.wait()
    if errors:
        raise errors[0]
    if waiting.cancelled_caught:
        comparison.give_up()
    # A copy: what is left behind may come to itself later.
    return replace(comparison.done, calls=list(comparison.done.calls))
