"""Progress that a run publishes: the newest value of each name, for whoever looks.

It is no part of the record that a replay follows, and costs no order. While recorded outcomes are
handed over nothing is written, so what others see does not run through the past again. What a
body published and is not in the store when its outcome is recorded is carried in that record.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from durable.protocol import names, values
from durable.protocol.records import Published
from durable.runtime.latest import Keeper, Latest
from durable.runtime.ownership import Ownership
from durable.runtime.scopes import calling_scope, current
from durable.runtime.surroundings import Surroundings


class Publishing:
    """The published values of one execution. In its event loop."""

    def __init__(self, around: Surroundings, ownership: Ownership, keeper: Keeper) -> None:
        self._around = around
        self._ownership = ownership
        self._keeper = keeper
        self._by_name: dict[str, Latest] = {}

    def put(self, name: str, value: msgspec.Raw) -> None:
        """Publish it soon."""
        if self._around.replay_only:
            return
        latest = self._by_name.get(name)
        if latest is None:
            latest = self._by_name[name] = self._latest(name)
        latest.put(value)

    def pending(self, published: Mapping[str, msgspec.Raw]) -> dict[str, msgspec.Raw]:
        """Which of these are the newest and not known to be in the store."""
        by_name = self._by_name
        return {
            name: value
            for name, value in published.items()
            if by_name[name].pending and by_name[name].value is value
        }

    async def flush(self) -> None:
        """Write what is pending: the run is over, or leaves this worker.

        Raises:
            StoreError: the store refuses it for good.
        """
        for latest in self._by_name.values():
            await latest.write()

    def _latest(self, name: str) -> Latest:
        owner = self._ownership

        def make(value: msgspec.Raw, nonce: str, now: float) -> Published:
            return Published(name, owner.epoch, nonce, now, value)

        object_name = names.state(owner.run_id, owner.instance, name, owner.epoch)
        return Latest(self._around, object_name, make, self._keeper)


def publish(name: str, value: object) -> None:
    """Let others see how far the run has come: `handle.published()`, `durable tail`.

    Of each name the newest value counts. It is written in the background, at most once a second
    for each name; the last one lands before the run's result. Works in workflows and in steps,
    async and sync, and does not wait.

    Args:
        name: what is told about.
        value: anything that a step could return without an annotation.

    Raises:
        NotInWorkflow: nothing durable is running here.
        InvalidId: the name is empty, too long or has control characters.
        InvalidArguments: the value cannot be stored.
    """
    names.check_id(name, what="name of published progress")
    raw = values.encode_argument(value, f"the value published as {name!r}")
    scope = calling_scope("publish")
    if scope is not None:
        scope.execution.publish(name, raw)
    else:
        current().inside("publish").publish(name, raw)
