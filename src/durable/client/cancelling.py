"""Asking for a run to be cancelled: a fact in its folder, then a wake-up for whoever holds it."""

from __future__ import annotations

from typing import Literal

from durable.client import reading
from durable.errors import NotFound
from durable.protocol import texts
from durable.runtime import asking
from durable.store import Store

CancelAnswer = Literal["requested", "finished"]


async def request(store: Store, run: str, instance: str, reason: str = "") -> CancelAnswer:
    """Ask for this instance to be cancelled.

    An outcome recorded between the two looks is found by the second, so `requested` means that
    the run was not over when the request became known, or came to nothing but `cancelled`.

    Raises:
        NotFound: the id does not stand for this instance any more.
        UsageError: the reason cannot be kept.
    """
    texts.check(reason, "reason")
    if await reading.read_result(store, run, instance) is not None:
        return "finished"
    start = await reading.read_start(store, run)
    if start.instance != instance:
        raise NotFound(
            f"run {run!r} was started anew: this handle is of an instance that is over",
            hint="get a handle of the present one: `client.get(id)`",
            run=run,
        )
    await asking.cancel(store, run, start, reason)
    over = await reading.read_result(store, run, instance)
    return "requested" if over is None or over.status == "cancelled" else "finished"
