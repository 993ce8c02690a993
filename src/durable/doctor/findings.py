"""What was found."""

from __future__ import annotations

from typing import Literal

import msgspec

Level = Literal["ok", "note", "warning", "refused"]


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at.

    Attributes:
        check: what, in one word.
        level: `refused` means that durable cannot work there; a `warning` costs money or time.
        found: what was found, for people.
        fix: what to do about it, a command where there is one.
    """

    check: str
    level: Level
    found: str
    fix: str = ""


class Spread(msgspec.Struct, frozen=True):
    """How long calls took, in milliseconds."""

    p50_ms: float
    p99_ms: float


class Report(msgspec.Struct):
    """All that was found.

    Attributes:
        store: its URL.
        latency: of each operation that was timed.
        clock_offset: seconds that the store's clock is ahead of this machine's; None: not looked.
    """

    store: str
    findings: list[Finding] = []  # a Struct copies it
    latency: dict[str, Spread] = {}  # a Struct copies it
    clock_offset: float | None = None

    @property
    def refused(self) -> list[Finding]:
        """The findings that keep the store from being used."""
        return [finding for finding in self.findings if finding.level == "refused"]
