"""Digests of calls: equal for calls that mean the same, on every machine."""

from __future__ import annotations

import enum
import inspect
import math
import os
import re
import subprocess
import sys
import typing
from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest

import durable.errors
from durable.protocol.digests import canonical, comparable, of_call
from tests.protocol.kinds import KINDS, Kind


def charge(order: object, amount: float = 1.0, *rest: object, note: str = "", **more: Any) -> None:
    """Every kind of parameter."""


def digest(function: Callable[..., object], *args: object, **kwargs: object) -> str:
    hints = {
        name: hint for name, hint in typing.get_type_hints(function).items() if name != "return"
    }
    return of_call(function.__name__, inspect.signature(function), args, kwargs, hints)


def test_form() -> None:
    """A digest says by which rules it was made."""
    made = digest(charge, "A")

    assert made.startswith("1:")
    assert len(made) == 26


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((("A",), {}), ((), {"order": "A"})),
        ((("A",), {}), (("A", 1.0), {})),
        ((("A",), {}), (("A", 1), {})),
        ((("A",), {}), (("A",), {"note": "", "amount": 1.0})),
        ((("A", 3), {}), (("A", 3.0), {})),
        ((("A",), {"x": 1, "y": 2}), (("A",), {"y": 2, "x": 1})),
        ((({"a": 1, "b": 2},), {}), (({"b": 2, "a": 1},), {})),
        ((({1: 1, 2: 2},), {}), (({2: 2, 1: 1},), {})),
        ((({"a", "b", "c"},), {}), (({"c", "b", "a"},), {})),
        (((object(),), {}), ((object(),), {})),
        ((("A", math.nan), {}), (("A", float("nan")), {})),
    ],
    ids=["keyword", "default", "int-default", "defaults", "int-for-float", "order", "dict",
         "pairs", "set", "opaque", "nan"],
)  # fmt: skip
def test_same_meaning(
    one: tuple[tuple[object, ...], dict[str, object]],
    other: tuple[tuple[object, ...], dict[str, object]],
) -> None:
    """How a call is written does not change its digest."""
    assert digest(charge, *one[0], **one[1]) == digest(charge, *other[0], **other[1])


@pytest.mark.parametrize(
    "call",
    [
        (("B",), {}),
        (("A", 2.0), {}),
        (("A", 1.0, "rest"), {}),
        (("A",), {"note": "n"}),
        (("A",), {"more": 1}),
        ((None,), {}),
        ((1,), {}),
        ((1.0,), {}),
        (("1",), {}),
        ((True,), {}),
        (((1,),), {}),
        (([1],), {}),
        (({1},), {}),
        (({1: 2},), {}),
        (({"1": 2},), {}),
        ((b"A",), {}),
        ((object(),), {}),
        ((len,), {}),
        ((math.nan,), {}),
        ((2**70,), {}),
        (("a\udc80",), {}),
        (("a" + chr(0xDC81),), {}),
        (("A=1", 2.0), {}),
    ],
    # No addresses: an id is the same in every process.
    ids=lambda call: re.sub(r" at 0x[0-9a-f]+", "", repr(call)),
)
def test_other_meaning(call: tuple[tuple[object, ...], dict[str, object]]) -> None:
    """Every difference in an argument's value or type changes the digest."""
    others = [("A",), ("\x00",), ([1.0],), ("A", 3.0)]

    made = digest(charge, *call[0], **call[1])

    assert made not in [digest(charge, *other) for other in others]
    assert made == digest(charge, *call[0], **call[1])


def test_all_kinds_differ() -> None:
    """No two kinds of value share a digest."""
    # Two kinds have the value of another one, under another annotation.
    kinds = [kind for kind in KINDS if kind.id not in {"sequence", "str-or-date"}]

    assert len({digest(charge, kind.value) for kind in kinds}) == len(kinds)


def test_name_counts() -> None:
    """The same arguments for another function are another call."""
    signature = inspect.signature(charge)

    assert of_call("a", signature, ("x",), {}) != of_call("b", signature, ("x",), {})


def test_new_defaulted_parameter() -> None:
    """A parameter added with a default changes no recorded call's digest."""

    def before(order: str) -> None: ...
    def after(order: str, *, currency: str = "EUR", tags: tuple[str, ...] = ()) -> None: ...

    after.__name__ = before.__name__
    assert digest(before, "A") == digest(after, "A")
    assert digest(before, "A") != digest(after, "A", currency="USD")


class Plain:
    """Cannot be stored."""

    def method(self, x: int) -> None: ...


CALLED: list[str] = []


def factory() -> int:
    CALLED.append("factory")
    return 1


@dataclass
class Before:
    """Before a deploy."""

    id: str


@dataclass
class After:
    """The same class after a deploy that added fields with defaults."""

    id: str
    currency: str = "EUR"
    lines: list[str] = field(default_factory=list)
    total: float = math.nan


class AfterStruct(msgspec.Struct):
    """The same as a Struct."""

    id: str
    currency: str = "EUR"
    lines: list[str] = []


@attrs.define
class AfterAttrs:
    """The same as an attrs class."""

    id: str
    currency: str = "EUR"
    lines: list[str] = attrs.field(factory=list)


class AfterTuple(typing.NamedTuple):
    """The same as a NamedTuple."""

    id: str
    currency: str = "EUR"


@pytest.mark.parametrize(
    "after",
    [After("A"), AfterStruct("A"), AfterAttrs("A"), AfterTuple("A")],
    ids=lambda after: type(after).__name__,
)
def test_new_defaulted_field(after: object) -> None:
    """A field added with a default changes nothing; a field with another value does."""
    assert canonical(after) == canonical(Before("A"))
    assert canonical([{"k": after}]) == canonical([{"k": Before("A")}])
    changed = type(after)("A", "USD")  # type: ignore[call-arg]  # the class was made anew, with other fields
    assert canonical(changed) != canonical(Before("A"))


def test_foreign_factories_are_not_called() -> None:
    """A default factory that may do anything is left alone; its field always counts."""
    kind = make_dataclass("kind", [("x", int, field(default_factory=factory))])
    value = kind(1)
    CALLED.clear()

    assert canonical(value) == b'{"x":1}'
    assert not CALLED


def test_self_and_foreign_values() -> None:
    """`self` and what cannot be stored count by their type's name, also inside a value."""
    name = f"{__name__}.Plain".encode()

    assert digest(Plain.method, Plain(), 1) == digest(Plain.method, Plain(), 1)
    assert canonical([Plain(), 1]) == b'[{"$":"opaque","v":"%b"},1]' % name
    assert digest(Plain.method, Plain(), 1) != digest(Plain.method, Before("A"), 1)
    assert digest(Plain.method, Before("A"), 1) == digest(Plain.method, Before("B"), 1)


class Broken(enum.Enum):
    """Cannot be read."""

    A = 1

    @property
    def value(self) -> int:
        raise RuntimeError("broken")


def test_never_raises() -> None:
    """Arguments that are endless or break when read count by their type's name."""
    cyclic: list[object] = []
    cyclic.append(cyclic)

    assert canonical(cyclic) == b'{"$":"opaque","v":"list"}'
    assert b"Broken" in canonical(Broken.A)
    digest(charge, *range(20), unexpected=Plain())
    of_call("f", inspect.signature(Plain.method), (), {"no": 1, "such": 2})


def test_wide_nesting_is_cheap() -> None:
    """Nested classes are read once each, not once per level."""

    @dataclass
    class Node:
        child: Node | None = None

    reads: list[int] = []

    class Counted(msgspec.Struct):
        @property
        def nothing(self) -> None: ...

        def __getattribute__(self, name: str) -> Any:
            if name == "value":
                reads.append(1)
            return super().__getattribute__(name)

        value: int = 0

    node: Any = Counted(1)
    for _ in range(50):
        node = Node(node)

    canonical(node)

    assert len(reads) == 1


def test_comparable() -> None:
    """Digests are compared only if the same rules made them."""
    assert comparable("1:aa", "1:bb")
    assert not comparable("1:aa", "2:aa")
    assert not comparable("1:aa", "11:aa")
    assert not comparable("", "1:aa")
    assert not comparable("1:aa", "")
    assert not comparable("", "")


# What digest_sample prints. Runs in flight hold such digests: if one of these changes, SCHEMA must.
PINNED = [
    "1:626e64184a86bedca711ecbb",
    "1:eccd834546ea34589674666d",
    "1:f34d5048258486210ea9ecf3",
    "1:5f89bcc8aa6779849660767a",
    "1:46699c93714e1bae5c11351c",
    "1:bfae987064d25f8bf2323081",
    "1:7b8680c3860bbeb06e9b3657",
    "1:e06a4ad9db1331d29316ddfa",
    "1:f116a1d6effa1ed1ca548c2f",
]


def sampled(python: str, seed: str = "random") -> list[str]:
    """What digest_sample prints under another interpreter or hash seed."""
    script = Path(__file__).with_name("digest_sample.py")
    source = Path(durable.errors.__file__).parents[1]
    out = subprocess.run(
        [python, str(script)],
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=True,
    )
    return out.stdout.split()


@pytest.mark.parametrize("seed", ["0", "4242"])
def test_other_hash_seed(seed: str) -> None:
    """Another process with another hash seed makes the digests that were pinned."""
    assert sampled(sys.executable, seed) == PINNED


@pytest.mark.requires("interpreters")
def test_other_interpreters() -> None:
    """Another version of Python makes the digests that were pinned."""
    for python in os.environ["DURABLE_PYTHONS"].split(os.pathsep):
        assert sampled(python) == PINNED, python


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.id)
def test_kinds_are_stable(kind: Kind) -> None:
    """Every kind of value has one canonical form."""
    assert canonical(kind.value) == canonical(kind.value)
    assert b"opaque" not in canonical(kind.value)
