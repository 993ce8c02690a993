"""The kinds of value that a step may return, each with the annotation that fits it.

Used by the codec tests and by every test that hands values through a real runtime: each must
come back exact in value and type. `annotated` says whether the value is stored only with its
annotation, as instances of users' classes are.
"""

from __future__ import annotations

import datetime as dt
import enum
import math
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import msgspec


@dataclass
class Order:
    """A user's dataclass, with parts that JSON alone would change."""

    id: str
    total: float
    lines: tuple[str, ...] = ()
    placed: dt.datetime | None = None
    extra: Any = None


@dataclass(frozen=True)
class Refund:
    """Has the same fields as Order's required ones: only a label can tell them apart."""

    id: str
    total: float


class Charge(msgspec.Struct):
    """A user's msgspec.Struct."""

    amount: Decimal
    tags: set[str] = set()


@attrs.define
class Parcel:
    """A user's attrs class, with a private attribute."""

    weight: float
    _secret: bytes = b""


class Point(NamedTuple):
    """A user's NamedTuple."""

    x: int
    y: int


class Colour(enum.Enum):
    """A user's enum with string values."""

    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    """A user's IntEnum: equal to an int, and not one."""

    LOW = 1
    HIGH = 2


class Mode(enum.StrEnum):
    """A user's StrEnum: equal to a str, and not one."""

    FAST = "fast"


class Ratio(enum.Enum):
    """A user's enum with values that are neither text nor integers."""

    HALF = 0.5
    PAIR = (1, 2)


class Options(typing.TypedDict):
    """A user's TypedDict."""

    retries: int
    names: frozenset[str]


class Kind(NamedTuple):
    """One kind of value.

    Attributes:
        id: for test names.
        value: the value.
        annotation: what a function that returns it would declare.
        annotated: whether it can be stored only under that annotation.
    """

    id: str
    value: object
    annotation: Any
    annotated: bool = False


PARIS = ZoneInfo("Europe/Paris")
FALL_BACK = dt.datetime(2026, 10, 25, 2, 30, tzinfo=PARIS, fold=1)

KINDS: list[Kind] = [
    Kind("none", None, None),
    Kind("bool", True, bool),
    Kind("int", 42, int),
    Kind("big-int", 2**256, int),
    Kind("negative-big-int", -(2**70), int),
    Kind("float", 0.1, float),
    Kind("whole-float", 3.0, float),
    Kind("negative-zero", -0.0, float),
    Kind("nan", math.nan, float),
    Kind("infinities", [math.inf, -math.inf], list[float]),
    Kind("str", 'naïve "text"\n\x00 \U0001f600', str),
    Kind("lone-surrogate", "a\udc80b", str),
    Kind("bytes", b"\x00\xff", bytes),
    Kind("bytearray", bytearray(b"ab"), bytearray),
    Kind("complex", complex(-0.0, math.inf), complex),
    Kind("list", [1, "a", None, [True]], list[Any]),
    Kind("tuple", (1, 2), tuple[int, ...]),
    Kind("nested-tuple", {"a": [(1, "x")]}, dict[str, list[tuple[int, str]]]),
    Kind("set", {"b", "a"}, set[str]),
    Kind("frozenset", frozenset({1, 2}), frozenset[int]),
    Kind("dict", {"b": 1, "a": 2}, dict[str, int]),
    Kind("int-keys", {1: "int", 2: "two"}, dict[int, str]),
    Kind("mixed-keys", {1: "int", "1": "str", (1,): "tuple", None: 0}, dict[Any, Any]),
    Kind("tag-key", {"$": "tuple", "v": [{"$": 1}]}, dict[str, Any]),
    Kind("naive-datetime", dt.datetime.fromisoformat("2026-01-02T03:04:05.000006"), dt.datetime),
    Kind("utc-datetime", dt.datetime(2026, 1, 2, tzinfo=dt.UTC), dt.datetime),
    Kind("zoned-datetime", FALL_BACK, dt.datetime),
    Kind(
        "offset-datetime",
        dt.datetime(2026, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=-3), "BRT")),
        dt.datetime,
    ),
    Kind("date", dt.date(2026, 1, 2), dt.date),
    Kind("time", dt.time(23, 59, 59, 999999, tzinfo=PARIS, fold=1), dt.time),
    Kind("timedelta", dt.timedelta(days=-1, microseconds=1), dt.timedelta),
    Kind("decimal", Decimal("1.10"), Decimal),
    Kind("decimal-nan", [Decimal("NaN"), Decimal("-0"), Decimal("sNaN5")], list[Decimal]),
    Kind("uuid", UUID(int=7), UUID),
    Kind("sequence", (1, 2), Sequence[int]),
    Kind("mapping", {"a": {1}}, Mapping[str, set[int]]),
    Kind("str-or-date", dt.date(2026, 1, 2), str | dt.date),
    Kind("typed-dict", Options(retries=1, names=frozenset({"a"})), Options),
    Kind(
        "dataclass",
        Order("A-1", math.nan, ("x",), FALL_BACK, extra={1: (b"", {2**70})}),
        Order,
        annotated=True,
    ),
    Kind("list-of-dataclass", [Order("A-1", 1.0)], list[Order], annotated=True),
    Kind("struct", Charge(Decimal("1.10"), {"a"}), Charge, annotated=True),
    Kind("attrs", Parcel(2.5, b"\x00"), Parcel, annotated=True),
    Kind("named-tuple", Point(1, 2), Point, annotated=True),
    Kind("enum", Colour.BLUE, Colour, annotated=True),
    Kind("int-enum", Level.HIGH, Level, annotated=True),
    Kind("str-enum", {Mode.FAST: 1}, dict[Mode, int], annotated=True),
    Kind("odd-enum", [Ratio.PAIR, Ratio.HALF], list[Ratio], annotated=True),
    Kind("union", [Refund("A-1", 1.0), Order("A-1", 1.0)], list[Order | Refund], annotated=True),
    Kind("union-of-all", Mode.FAST, Order | Mode | str | None, annotated=True),
]


def same(a: object, b: object) -> bool:
    """Whether two values are alike in value and type throughout; NaN is like NaN."""
    return _signs(a) == _signs(b)


def _signs(value: Any) -> object:
    """A value as nested tuples that compare equal only for values that are exactly alike."""
    kind = type(value)
    if kind in (float, complex, Decimal):
        return kind, repr(value)
    if kind in (list, tuple, Point):
        return kind, [_signs(item) for item in value]
    if kind in (set, frozenset):
        return kind, sorted(repr(_signs(item)) for item in value)
    if kind is dict:
        return kind, [(_signs(key), _signs(item)) for key, item in value.items()]
    if kind in (dt.datetime, dt.time):
        return kind, repr(value), value.fold, repr(value.tzinfo)
    if kind in (Order, Refund, Charge, Parcel):
        return kind, [_signs(getattr(value, name)) for name in kind.__annotations__]
    return kind, value
