"""The arguments of calls: stored, read back, and typed by a person."""

from __future__ import annotations

import datetime as dt
import inspect
import json
import typing
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from durable.errors import InvalidArguments
from durable.protocol.values import Undecodable, call_from_json, decode_call, encode_call
from tests.protocol.kinds import KINDS, Kind, Order, Refund, same


def checkout(
    order: Order, qty: int = 1, *rest: tuple[int, ...], note: str = "", **more: Any
) -> None:
    """Every kind of parameter."""


def loose(a, b=2, *, key=None):  # type: ignore[no-untyped-def]  # without annotations on purpose
    """No annotations."""


def dated(day: dt.date, price: Decimal, pairs: dict[int, set[str]], who: Order | Refund) -> None:
    """Types that JSON does not have."""


def parts(function: Callable[..., object]) -> tuple[inspect.Signature, dict[str, object]]:
    return inspect.signature(function), typing.get_type_hints(function)


ORDER = Order("A-1", 2.0)


@pytest.mark.parametrize(
    ("function", "args", "kwargs"),
    [
        (checkout, (ORDER,), {}),
        (checkout, (ORDER, 2, (1, 2), (3,)), {"note": "n", "extra": {1: (2,)}}),
        (checkout, (), {"order": ORDER, "qty": 3}),
        (loose, ((1, 2),), {"key": {3}}),
        (loose, (), {"a": None}),
        (dated, (dt.date(2026, 1, 2), Decimal("1.10"), {1: {"a"}}, Refund("A", 1.0)), {}),
    ],
    ids=["one", "all", "keywords", "loose", "loose-keyword", "dated"],
)
def test_round_trip(
    function: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
) -> None:
    """Arguments come back exactly, and as they were given: no default is filled in."""
    data = encode_call(*parts(function), args, kwargs)

    assert set(json.loads(data)) == {"args", "kwargs"}
    back = decode_call(msgspec.Raw(data), *parts(function))
    assert same(back[0], args)
    assert same(back[1], kwargs)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.id)
def test_each_kind(kind: Kind) -> None:
    """Every kind of value is an argument like any other."""
    signature, hints = inspect.signature(loose), {"a": kind.annotation}

    data = encode_call(signature, hints, (kind.value,), {})

    assert same(decode_call(data, signature, hints)[0], (kind.value,))


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        ((), {}, "missing a required argument: 'a'"),
        ((1, 2, 3), {}, "too many positional arguments"),
        ((1,), {"c": "hunter2"}, "unexpected keyword argument 'c'"),
        ((1,), {"a": "hunter2"}, "multiple values for argument 'a'"),
    ],
    ids=["missing", "too-many", "unknown", "twice"],
)
def test_call_that_does_not_fit(
    args: tuple[object, ...], kwargs: dict[str, object], words: str
) -> None:
    """A call that Python would refuse is refused with name and signature, without values."""
    with pytest.raises(InvalidArguments) as caught:
        encode_call(*parts(loose), args, kwargs, name="loose")

    assert words in caught.value.message
    assert "loose(a, b=2, *, key=None)" in caught.value.message
    assert "hunter2" not in caught.value.message


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        (("hunter2",), {}, "order does not fit"),
        ((ORDER, "hunter2"), {}, "qty does not fit `int`"),
        ((ORDER, 1, ("hunter2",)), {}, "rest does not fit"),
        ((ORDER,), {"note": len}, "note is of type builtin_function_or_method"),
        ((ORDER,), {"more": [Refund("hunter2", 1.0)]}, "write `more: list[Refund]`"),
    ],
    ids=["dataclass", "int", "variadic", "foreign", "class-in-any"],
)
def test_argument_that_does_not_fit(
    args: tuple[object, ...], kwargs: dict[str, object], words: str
) -> None:
    """An argument that cannot be stored is named, and its value not shown."""
    with pytest.raises(InvalidArguments) as caught:
        encode_call(*parts(checkout), args, kwargs, name="checkout")

    assert words in caught.value.message
    assert "hunter2" not in caught.value.message


def test_function_changed_since() -> None:
    """Recorded arguments that the function no longer takes are an error with its signature."""

    def narrower(a: int) -> None: ...

    data = encode_call(*parts(loose), (1,), {"key": 2})

    with pytest.raises(Undecodable, match=r"narrower\(a: 'int'\).*keyword argument 'key'"):
        decode_call(data, *parts(narrower), name="narrower")


@pytest.mark.parametrize("data", [b"", b"[]", b'{"args": 1}', b'{"args": [{"$": "x"}]}', b"\xff"])
def test_damaged_arguments(data: bytes) -> None:
    """Damaged arguments are an error of the data."""
    with pytest.raises(Undecodable):
        decode_call(data, *parts(loose))


def test_typed_keywords() -> None:
    """A JSON object is keywords, each read by its annotation and more leniently than a record."""
    text = """{"day": "2026-01-02", "price": "1.10", "pairs": {"1": ["a"]},
               "who": {"id": "A", "total": 1, "lines": ["x"]}}"""

    args, kwargs = call_from_json(text, *parts(dated))

    assert args == ()
    assert kwargs["day"] == dt.date(2026, 1, 2)
    assert kwargs["price"] == Decimal("1.10")
    assert kwargs["pairs"] == {1: {"a"}}
    assert kwargs["who"] in (Order("A", 1.0, ("x",)), Refund("A", 1.0))
    encode_call(*parts(dated), args, kwargs)


def test_typed_positionals() -> None:
    """A JSON array is positional arguments; big integers stay exact."""
    text = f'[{{"id": "A-1", "total": 2}}, {2**80}, [1, 2]]'

    args, kwargs = call_from_json(text.encode(), *parts(checkout))

    assert same(args, (ORDER, 2**80, (1, 2)))
    assert kwargs == {}


@pytest.mark.parametrize(
    "text", ['{"a": 1, "a": 2}', '{"a": {"b": [{"c": 1, "c": 1}]}, "key": 1}', '[{"c": 1, "c": 2}]']
)
def test_a_name_that_stands_twice_is_refused(text: str) -> None:
    """At any depth, also with one value: nobody would have said which of the two counts."""
    with pytest.raises(InvalidArguments, match="twice in one object"):
        call_from_json(text, *parts(checkout))


def test_typed_without_annotations() -> None:
    """Without annotations JSON stays what it is; what a record shows can be pasted back."""
    text = '{"a": {"$": "tuple", "v": [1]}, "key": {"x": [1]}}'

    assert call_from_json(text, *parts(loose)) == ((), {"a": (1,), "key": {"x": [1]}})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("", "not JSON"),
        (b"\xff", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("3", "must be a JSON object"),
        ('"x"', "must be a JSON object"),
        ("{}", "missing a required argument: 'order'"),
        ('{"order": {"id": "A"}}', "order does not fit"),
        ('[{"id": "A", "total": 1}, "two"]', "qty does not fit"),
        ('{"order": {"$": "no such tag"}}', "order has the unknown tag"),
    ],
    ids=repr,
)
def test_typed_wrongly(text: bytes | str, words: str) -> None:
    """Bad input names what is wrong: the JSON, the call, or one argument."""
    with pytest.raises(InvalidArguments) as caught:
        call_from_json(text, *parts(checkout), name="checkout")

    assert words in caught.value.message


def test_input_that_is_nested_too_deeply() -> None:
    """It is refused as other bad input is, never with a RecursionError."""

    def f(x: object) -> None: ...

    signature = inspect.signature(f)
    for depth in (600, 5000):
        with pytest.raises(InvalidArguments, match=r"nested too deeply|not JSON"):
            call_from_json("[" * depth + "]" * depth, signature, {"x": object}, name="f")
