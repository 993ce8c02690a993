"""`patched`: whether a run follows new code or what its record was made by.

A run that is past the place in question, so that recorded outcomes are still to be handed over
there, goes on with the old code; any other takes the new. That is decided once. A yes is carried
by the records that follow it; until there is one nothing has come of it, and a later owner may
decide again. A no needs no record: the outcomes that said so stay.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from durable.protocol.names import encode_part


class Patches:
    """The decisions of one execution. From any of its strands.

    Args:
        recorded: what earlier owners said yes to.
        at_end: whether no recorded outcome is left to be handed over.
        record: told of each yes.
    """

    def __init__(
        self, recorded: Collection[str], at_end: Callable[[], bool], record: Callable[[str], None]
    ) -> None:
        self._decided = dict.fromkeys(recorded, True)
        self._at_end = at_end
        self._record = record

    def decide(self, id: str, path: str = "") -> bool:
        """For the run as a whole, or for the one call at `path`."""
        patch = f"{encode_part(id)} {path}".rstrip()
        if patch not in self._decided:
            self._decided[patch] = self._at_end()
            if self._decided[patch]:
                self._record(patch)
        return self._decided[patch]
