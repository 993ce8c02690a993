"""Prints digests of calls whose canonical form depends on order, text and numbers.

A script of its own: `test_digests` runs it under other hash seeds and other interpreters, which
have durable and nothing else.
"""

from __future__ import annotations

import datetime as dt
import enum
import inspect
import math
from dataclasses import dataclass, field
from decimal import Decimal

import msgspec

from durable.protocol.digests import of_call


class Colour(enum.Enum):
    RED = "red"


class Client:
    def send(self, text: str) -> None: ...


@dataclass
class Order:
    id: str
    lines: list[str] = field(default_factory=list)
    total: float = math.nan


class Charge(msgspec.Struct):
    amount: Decimal
    tags: set[str]


def charge(order: object, amount: float = 1.0, *rest: object, note: str = "") -> None: ...


def digest(*args: object, **kwargs: object) -> str:
    return of_call("charge", inspect.signature(charge), args, kwargs, {"amount": float})


NAMES = {f"name-{i}" for i in range(50)}
NUMBERS = [0.1, 1e16, 1e22, 5e-324, -0.0, math.inf, math.nan, Decimal("1E+5"), 2**200, 2**63]

if __name__ == "__main__":
    print(digest(NAMES))
    print(digest({name: {1, 2, name} for name in NAMES}))
    print(digest(frozenset({1.5, "a", None, (1, "b"), b"c"}), 3, note="é"))
    print(digest({("a", name): name for name in NAMES}, amount=3.0))
    print(digest(NUMBERS, 1.0, "rest", note="a\udc80"))
    print(digest(dt.datetime(2026, 1, 2, tzinfo=dt.UTC), note=str(dt.timedelta(1))))
    print(digest([Order("A"), Order("A", ["x"]), Colour.RED, Charge(Decimal("1.10"), NAMES)]))
    print(digest(Client(), 1, len))
    print(of_call("send", inspect.signature(Client.send), (Client(), "x"), {}))
