"""The ways in which a store call can go wrong, or something happens to its process there."""

from __future__ import annotations

from typing import Literal

Fault = Literal[
    "unsent",
    "reply_lost",
    "late",
    "late_crash",
    "busy",
    "busy_storm",
    "outage",
    "refused",
    "vanished",
    "truncated",
    "twice",
    "short_pages",
    "crash_before",
    "crash_applied",
    "crash_answered",
    "pause_half",
    "pause_over",
    "pause_long",
    "suspend",
    "jump_ahead",
    "jump_back",
    "cancel",
]

# The numbers under which docs/explanation/reliability.md lists them.
MODES: dict[int, tuple[Fault, ...]] = {
    1: ("unsent",),
    2: ("reply_lost",),
    3: ("late", "late_crash"),
    4: ("busy", "busy_storm"),
    5: ("outage",),
    6: ("refused",),
    7: ("vanished",),
    8: ("truncated",),
    9: ("twice",),
    10: ("short_pages",),
    11: ("crash_before", "crash_applied", "crash_answered"),
    12: ("pause_half", "pause_over", "pause_long", "suspend"),
    13: ("jump_ahead", "jump_back"),
    14: ("cancel",),
}
FAULTS: tuple[Fault, ...] = tuple(fault for faults in MODES.values() for fault in faults)

# What anybody may delete at any moment: hints that are found again, and leases.
FOREIGN = ("bells/", "presence/", "workers/")

_MUTATIONS = {"create", "replace", "delete", "copy"}


def applies(fault: Fault, verb: str, name: str) -> bool:
    """Whether this fault makes a difference to such a call.

    To a read or list that comes back cut short, one that was not sent or whose reply was lost is
    the same: nothing has changed, and nothing is known.
    """
    match fault:
        case "unsent" | "reply_lost":
            return verb in _MUTATIONS
        case "late" | "late_crash" | "twice" | "crash_applied":
            return verb in _MUTATIONS
        case "truncated":
            return verb in {"read", "list"}
        case "short_pages":
            return verb == "list"
        case "vanished":
            return verb != "list" and name.startswith(FOREIGN)
        case _:
            return True
