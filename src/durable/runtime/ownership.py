"""Which run an execution is of and under which epoch: what is stamped on all that it records."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from durable.runtime.scopes import Current

if TYPE_CHECKING:
    from durable.runtime.inside import Inside


@dataclass(kw_only=True)
class Ownership:
    """One owner's hold on one run.

    Attributes:
        instance: tells apart runs that had this id one after the other.
        workflow: the workflow's name.
        epoch: higher than that of every earlier owner of the run.
        version: of the workflow, as the run was started.
        tick: of the schedule that started the run; 0: none did.
    """

    run_id: str
    instance: str
    workflow: str
    epoch: int
    tick: float = 0.0
    version: str = ""

    def current(self, path: str = "", attempt: int = 1, inside: Inside | None = None) -> Current:
        """What the body of the call at `path` may know; without a path, the workflow function."""
        return Current(
            run_id=self.run_id, workflow=self.workflow, attempt=attempt, epoch=self.epoch,
            idempotency_key=self._key(path), _inside=inside, version=self.version,
            tick=datetime.fromtimestamp(self.tick, UTC) if self.tick else None,
        )  # fmt: skip

    def _key(self, path: str) -> str:
        place = f"{self.run_id}\n{self.instance}\n{path}"
        return hashlib.sha256(place.encode()).hexdigest()[:32]
