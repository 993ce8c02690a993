"""Which run an execution is of and under which epoch: what is stamped on all that it records."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

from durable.protocol import names


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

    @cached_property
    def folder(self) -> str:
        """Where all that it records is."""
        return names.instance_folder(self.run_id, self.instance)

    def key(self, path: str) -> str:
        """The idempotency key of the call at `path`; without a path, the workflow function's."""
        place = f"{self.run_id}\n{self.instance}\n{path}"
        return hashlib.sha256(place.encode()).hexdigest()[:32]
