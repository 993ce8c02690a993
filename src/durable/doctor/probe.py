"""The folder in which a store is tried, and its end."""

from __future__ import annotations

from contextlib import suppress

import anyio

from durable.doctor.findings import Finding
from durable.errors import StoreError
from durable.store import Store

CLEANING_SECONDS_MAX = 20.0


class Probe:
    """A folder of its own in a store.

    Attributes:
        store: that is tried.
        folder: where, with a slash at the end.
        used: whether anything was to be written.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.folder = f"doctor/{store.system.token()}/"
        self.used = False
        self._names: set[str] = set()

    def name(self, end: str) -> str:
        """The name of an object in the folder; whatever is there at the end is deleted."""
        self.used = True
        name = self.folder + end
        self._names.add(name)
        return name

    def gone(self, name: str) -> None:
        """That object was deleted."""
        self._names.discard(name)

    async def clean(self) -> Finding:
        """Delete what is left, also when the work around it was cancelled."""
        with anyio.move_on_after(CLEANING_SECONDS_MAX, shield=True):
            async with anyio.create_task_group() as tasks:
                for name in sorted(self._names):
                    tasks.start_soon(self._delete, name)
        if not self._names:
            return Finding("clean-up", "ok", f"nothing is left in {self.folder}")
        found = f"there may be something left in {self.folder}"
        return Finding("clean-up", "warning", found, "Delete that folder; nothing reads it.")

    async def _delete(self, name: str) -> None:
        # By name, not by list: whoever may not list may still be allowed to delete.
        with suppress(StoreError):
            stored = await self.store.read(name)
            if stored is None or await self.store.delete(name, stored.generation):
                self.gone(name)
