"""The flag of a body that nobody waits for any more.

A task is cancelled and a child process killed, but a thread can only be told. Its flag is set
whenever the task that waits for it stops waiting, whatever the reason: a timeout, a cancelled
run, a lost lease, the end of a worker's grace.
"""

from __future__ import annotations

import msgspec


class Flag(msgspec.Struct, eq=False):  # made for every attempt
    """Set once, from the event loop; read from any thread."""

    is_set: bool = False

    def set(self) -> None:
        """From now on nobody waits."""
        self.is_set = True
