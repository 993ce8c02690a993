"""Sending an event to a run: a fact in its folder, then a wake-up for whoever holds it."""

from __future__ import annotations

from typing import Literal

import msgspec

from durable.client import reading
from durable.errors import NotFound
from durable.protocol import names, records, values
from durable.protocol.records import Event
from durable.runtime import markers
from durable.store import Store

SendAnswer = Literal["accepted", "finished"]


def encoded(name: str, value: object, kind: object) -> msgspec.Raw:
    """The value of an event as it is stored, checked against its type where that is known.

    Raises:
        InvalidArguments: it does not fit, or cannot be stored.
    """
    names.check_id(name, what="name of an event")
    return values.encode_argument(
        value, f"the value of event {name!r}", kind,
        hint="builtins are stored as they are; other classes where the type is declared: "
        f"@workflow(events={{{name!r}: ...}})",
    )  # fmt: skip


async def send(
    store: Store, run: str, instance: str, name: str, value: msgspec.Raw, *, key: str | None = None
) -> SendAnswer:
    """Send an event to this instance; the same key again is the same event.

    Raises:
        NotFound: there is no run of that id any more.
    """
    key = store.system.token() if key is None else key
    names.check_id(key, what="key of an event")
    start = await reading.read_start(store, run)
    if start.instance != instance:
        raise NotFound(
            f"run {run!r} was started anew: this handle is of an instance that is over",
            hint="get a handle of the present one: `client.get(id)`",
            run=run,
        )
    if await reading.read_result(store, run, instance) is not None:
        return "finished"
    event = Event(name=name, key=key, value=value, nonce=store.system.token(), time=store.now())
    await store.create(
        names.event(run, instance, name, key), records.encode(event), nonce=event.nonce
    )
    # If it was sent before, whoever did so may have died before this.
    await markers.wake(store, run, start, nonce=store.system.token)
    # Over meanwhile: then no wait sees it, and it stays listed as unconsumed.
    over = await reading.read_result(store, run, instance)
    return "accepted" if over is None else "finished"
