"""What the checker reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["changed", "lost", "repeated", "broken"]


@dataclass(frozen=True)
class Violation:
    """One thing that must not be.

    `kind`: `changed` (a value, an order or a result), `lost` (a run without its one outcome),
    `repeated` (a body that ran again without a reason), `broken` (any other promise).
    """

    kind: Kind
    run: str  # empty: it concerns no single run
    text: str
    rule: str = ""  # the function that found it
