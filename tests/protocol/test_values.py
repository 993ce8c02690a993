"""Values come back as they were, or are refused before anybody saw them."""

from __future__ import annotations

import collections
import datetime as dt
import enum
import json
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable.errors import InvalidDefinition, UnencodableResult
from durable.protocol import values
from durable.protocol.values import Undecodable, Unencodable
from tests.protocol.kinds import (
    KINDS,
    Charge,
    Colour,
    Kind,
    Level,
    Mode,
    Order,
    Parcel,
    Point,
    Refund,
    same,
)

BUILTINS = [kind for kind in KINDS if not kind.annotated]


def ids(kind: Kind) -> str:
    return kind.id


@pytest.mark.parametrize("kind", BUILTINS, ids=ids)
def test_builtins_without_annotation(kind: Kind) -> None:
    """A builtin comes back exact in value and type although nothing announces its type."""
    data, copy = values.encode_checked(kind.value)

    assert same(copy, kind.value)
    assert same(values.decode(data), kind.value)


@pytest.mark.parametrize("kind", KINDS, ids=ids)
def test_with_annotation(kind: Kind) -> None:
    """A value comes back exact in value and type under the annotation that fits it."""
    data, copy = values.encode_checked(kind.value, kind.annotation)

    assert same(copy, kind.value)
    assert same(values.decode(data, kind.annotation), kind.value)
    assert same(values.decode(msgspec.Raw(data), kind.annotation), kind.value)


@pytest.mark.parametrize("kind", KINDS, ids=ids)
def test_is_json(kind: Kind) -> None:
    """What is stored is JSON that any strict reader takes: no NaN, no lone surrogates."""

    def refuse(text: str) -> None:
        raise AssertionError(f"{text} is not JSON")

    json.loads(values.encode(kind.value, kind.annotation).decode(), parse_constant=refuse)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.annotated], ids=ids)
def test_classes_need_an_annotation(kind: Kind) -> None:
    """An instance of a user's class is refused without annotation, with the one to write."""
    with pytest.raises(Unencodable, match="is of your class") as caught:
        values.encode_checked(kind.value)

    assert caught.value.missing


@pytest.mark.parametrize("kind", KINDS, ids=ids)
def test_annotation_is_accepted(kind: Kind) -> None:
    """No annotation whose values can be stored is refused at decoration."""
    values.check_annotation(kind.annotation, "f(), its result")


def test_readable() -> None:
    """Plain data is plain JSON, and a tag says in a word what JSON cannot."""
    value = {"order": "A-1", "at": dt.date(2026, 1, 2), "tags": {"b", "a"}}

    assert values.encode(value) == (
        b'{"order":"A-1","at":{"$":"date","v":"2026-01-02"},"tags":{"$":"set","v":["a","b"]}}'
    )


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=2**63 - 2, max_value=2**64 + 2)
    | st.floats()
    | st.text(st.characters(exclude_categories=()))
    | st.binary()
    | st.decimals(allow_nan=True)
    | st.datetimes(timezones=st.none() | st.just(dt.UTC) | st.just(ZoneInfo("America/New_York")))
    | st.dates()
    | st.timedeltas()
    | st.uuids()
)
KEYS = st.none() | st.booleans() | st.integers() | st.text() | st.just("$") | st.binary()


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(KEYS, inner)
        | st.frozensets(KEYS)
        | st.sets(st.tuples(KEYS, KEYS))
    )


@given(st.recursive(LEAVES, nested, max_leaves=12))
def test_any_nesting_of_builtins(value: object) -> None:
    """Whatever is built from builtins comes back exact, and is stored the same way twice."""
    data, copy = values.encode_checked(value)

    assert same(copy, value)
    assert values.encode(copy) == data


@given(st.recursive(LEAVES, nested, max_leaves=8))
def test_untyped_field_of_a_class(value: object) -> None:
    """A field of type Any keeps any builtin exactly."""
    copy = values.encode_checked(Order("A", 1.0, extra=value), Order)[1]

    assert isinstance(copy, Order)
    assert same(copy.extra, value)


class Sub(str):
    """A user's class that pretends to be a str."""

    __slots__ = ()


@dataclass
class BigOrder(Order):
    """Adds nothing to Order but its class."""


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        ("3", int),
        (3.0, int),
        (True, int),
        (1, bool),
        (Level.HIGH, int),
        (Mode.FAST, str),
        (Sub("x"), str),
        (2**60 + 1, float),
        ([1, 2], tuple[int, ...]),
        ({1}, frozenset[int]),
        ({"a": "1"}, dict[str, int]),
        ({1: 1}, dict[str, int]),
        (None, int),
        (1, type(None)),
        (b"x", str),
        (dt.datetime(2026, 1, 2, tzinfo=dt.UTC), dt.date),
        (BigOrder("A", 1.0), Order),
        (Refund("A", 1.0), Order),
        ([BigOrder("A", 1.0)], list[Order | Refund]),
        (Order("A", 1.0, extra=Refund("B", 2.0)), Order),
        ({"a": Order("A", 1.0)}, dict[str, Any]),
        (Order("A", 1.0, lines=["x"]), Order),  # type: ignore[arg-type]  # wrong on purpose
        (Point("x", 2), Point),  # type: ignore[arg-type]  # wrong on purpose
        (Colour.RED, Mode),
    ],
    ids=repr,
)
def test_misfit_is_refused(value: object, annotation: object) -> None:
    """A value that its annotation would change is refused rather than changed."""
    with pytest.raises(Unencodable, match=r"annotation|does not fit|which is not stored"):
        values.encode_checked(value, annotation)


def test_int_for_float() -> None:
    """A whole number is taken where a float is annotated, as type checkers do."""
    copy = values.encode_checked([1, 2.5], list[float])[1]

    assert same(copy, [1.0, 2.5])


def a_generator() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    "value",
    [
        ...,
        object(),
        range(3),
        len,
        int,
        a_generator(),
        memoryview(b"x"),
        Path("x"),
        collections.OrderedDict(a=1),
        collections.defaultdict(int, a=1),
        collections.deque([1]),
        ValueError("x"),
        slice(1),
        NotImplemented,
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("annotation", [None, object, list[Any]], ids=str)
def test_foreign_types_are_refused(value: object, annotation: object) -> None:
    """What is neither a builtin value nor a declared class is refused by name and place."""
    with pytest.raises(Unencodable, match=f"{type(value).__name__}, which is not") as caught:
        values.encode_checked([1, {"deep": value}], annotation)

    assert caught.value.where("result") == "result[1]['deep']"


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        (collections.OrderedDict(a=1), "dict"),
        (Sub("x"), "str"),
        (range(3), "list"),
        ({}.keys(), "list"),
        (a_generator(), "list"),
        (Path("x"), "str"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_advice(value: object, advice: str) -> None:
    """The error says what to pass in place of a value that has a storable twin."""
    with pytest.raises(Unencodable, match=rf"pass `{advice}\(...\)` of it"):
        values.encode_checked(value)


def test_coroutine() -> None:
    """A forgotten `await` is named as such."""

    async def body() -> None: ...

    coroutine = body()
    with pytest.raises(Unencodable, match="write `await` before it"):
        values.encode_checked(coroutine)
    coroutine.close()


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (frozenset({Refund("A", 1.0)}), frozenset[Refund]),
        ({Refund("A", 1.0), Point(1, 2)}, set[Refund | Point]),
        ({Point(1, 2): {Mode.FAST}}, dict[Point, set[Mode]]),
    ],
    ids=["set", "union-set", "key"],
)
def test_instances_in_sets_and_keys(value: object, annotation: object) -> None:
    """Hashable instances come back as members of sets, and NamedTuples as keys."""
    assert values.encode_checked(value, annotation)[1] == value


@dataclass(frozen=True)
class Crowded:
    """Its hash is everybody's, so that a set keeps the order of insertion."""

    n: int

    def __hash__(self) -> int:
        return 7


@dataclass(frozen=True)
class CrowdedToo(Crowded):
    def __hash__(self) -> int:
        return 7


@pytest.mark.parametrize("order", [1, -1])
def test_the_order_in_a_set_means_nothing(order: int) -> None:
    """However a set came about, it comes back; nor does a hash seed decide it."""
    value = set([Crowded(1), CrowdedToo(2)][::order])

    data, copy = values.encode_checked(value, set[Crowded | CrowdedToo])
    assert copy == value
    assert data == values.encode_checked(copy, set[Crowded | CrowdedToo])[0]


def test_instance_as_key() -> None:
    """A dataclass as a key is refused, with what to use."""
    with pytest.raises(Unencodable, match="use builtins, enums or NamedTuples as keys"):
        values.encode_checked({Refund("A", 1.0): 1}, dict[Refund, int])


@dataclass
class Wide:
    """Its annotation is wider than what comes back."""

    parts: dict[str, Sequence[int]]


def test_place_of_a_change() -> None:
    """What would come back different is named by its place, without its value."""
    with pytest.raises(Unencodable, match=r"its part \['parts'\]\['a'\] would come back") as caught:
        values.encode_checked(Wide({"b": [1], "a": (12345,)}), Wide)

    assert "12345" not in str(caught.value)


def nest(depth: int, wrap: Callable[[object], object]) -> object:
    value: object = 1
    for _ in range(depth):
        value = wrap(value)
    return value


@dataclass
class Tree:
    """Holds itself."""

    child: Tree | None = None


def cyclic() -> object:
    value: list[object] = []
    value.append(value)
    return value


def cyclic_tree() -> Tree:
    tree = Tree()
    tree.child = tree
    return tree


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (nest(5000, lambda inner: [inner]), None),
        (nest(5000, lambda inner: {"a": inner}), None),
        (nest(5000, lambda inner: (inner,)), list[Any]),
        (nest(5000, lambda inner: {1: inner}), dict[Any, Any]),
        (nest(5000, Tree), Tree),
        (cyclic(), None),
        (cyclic(), list[Any]),
        (cyclic_tree(), Tree),
    ],
    ids=["list", "dict", "tuple", "pairs", "tree", "cycle", "typed-cycle", "tree-cycle"],
)
def test_deep_and_cyclic_data(value: object, annotation: object) -> None:
    """Data without end is an error that says so, never a crash."""
    with pytest.raises(Unencodable, match="levels deep, or contains itself"):
        values.encode_checked(value, annotation)


@pytest.mark.parametrize(
    "wrap", [lambda v: [v], lambda v: (v,), lambda v: {1: v}], ids=["list", "tuple", "dict"]
)
def test_depth_that_is_allowed(wrap: Callable[[object], object]) -> None:
    """A hundred levels fit, also in the forms that take most JSON."""
    value = nest(100, wrap)

    assert values.encode_checked(value)[1] == value


def test_long_integer() -> None:
    """Integers beyond Python's own limit on decimal digits come back."""
    assert values.encode_checked(-(10**5000))[1] == -(10**5000)


def test_copy_is_not_the_value() -> None:
    """What the workflow gets is a copy: changing it changes nothing of the step's own."""
    value = {"a": [1]}

    copy: Any = values.encode_checked(value)[1]
    copy["a"].append(2)

    assert value == {"a": [1]}


def test_foreign_zone() -> None:
    """A zone of another library is kept as its offset: the same instant."""

    class Foreign(dt.tzinfo):
        def utcoffset(self, when: dt.datetime | None) -> dt.timedelta:
            return dt.timedelta(hours=2)

        def dst(self, when: dt.datetime | None) -> None:
            return None

        def tzname(self, when: dt.datetime | None) -> str:
            return "F"

    value = dt.datetime(2026, 1, 2, tzinfo=Foreign())

    copy = values.encode_checked(value)[1]

    assert copy == value
    assert isinstance(copy, dt.datetime)
    assert copy.tzinfo == dt.timezone(dt.timedelta(hours=2))


def test_extra_and_missing_fields() -> None:
    """Stored data with a field too many is read; one field too few is an error that names it."""
    assert values.decode(b'{"id":"A","total":1.0,"new":2}', Refund) == Refund("A", 1.0)
    with pytest.raises(Undecodable, match="missing required field `total`"):
        values.decode(b'{"id":"A"}', Refund)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"nan",
        b"\xff",
        b'"\xff"',
        b"[" * 100_000,
        b'{"$":"no such tag","v":1}',
        b'{"$":[1],"v":1}',
        b'{"$":"tuple"}',
        b'{"$":"tuple","v":"ab"}',
        b'{"$":"set","v":[[1]]}',
        b'{"$":"dict","v":[[[1],2]]}',
        b'{"$":"dict","v":[[1]]}',
        b'{"$":"int","v":"x"}',
        b'{"$":"int","v":null}',
        b'{"$":"bytes","v":"?"}',
        b'{"$":"decimal","v":"x"}',
        b'{"$":"datetime","v":"yesterday"}',
        b'{"$":"datetime","v":"2026-01-01","zone":"../../etc/passwd"}',
        b'{"$":"datetime","v":"2026-01-01","zone":"No/Such"}',
        b'{"$":"timedelta","v":[1e400]}',
        b'{"$":"case","of":"Order","v":{}}',
        b'{"$":"case","of":"os.system","v":"true"}',
        b'{"$":"complex","v":["a","b"]}',
        b'{"$":"str","v":"\\\\N{no such}"}',
    ],
    ids=repr,
)
@pytest.mark.parametrize("annotation", [None, object, list[Order | Refund]], ids=str)
def test_damaged_data(data: bytes, annotation: object) -> None:
    """Damaged or hostile data is one kind of error, whatever is wrong with it."""
    with pytest.raises(Undecodable):
        values.decode(data, annotation)


def test_place_of_damage() -> None:
    """The error about stored data says where in the value it is."""
    with pytest.raises(Undecodable, match=r"value\['a'\]\[1\] has the unknown tag 'new'"):
        values.decode(b'{"a":[1,{"$":"new"}]}')


class Client:
    """Cannot be stored."""


@dataclass
class Holder:
    """A field that cannot be stored."""

    client: Client


@dataclass
class Either:
    """A union that msgspec cannot tell apart, where it cannot be helped."""

    outcome: Order | Refund


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (Client, "Client"),
        (list[Client], "Client"),
        (Client | None, "Client"),
        (Order | Client, "Client"),
        (Holder, "Client"),
        (Either, "tag=True"),
        (Callable[[int], int], "Callable"),
        (Iterator[int], "Iterator"),
        (Path, "Path"),
        (type[int], "type"),
        (msgspec.Raw, "Raw"),
        ("Order", "Order"),
        (dict[str, Sequence[Client]], "Client"),
    ],
    ids=repr,
)
def test_annotation_is_refused(annotation: object, words: str) -> None:
    """What can never be stored is refused at decoration, naming function, part and remedy."""
    with pytest.raises(InvalidDefinition, match=words) as caught:
        values.check_annotation(annotation, "checkout(), its result")

    assert "checkout(), its result" in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    "annotation",
    [None, Any, object, type(None), typing.NoReturn, dict, list, typing.TypeVar("T")],
    ids=repr,
)
def test_open_annotations(annotation: object) -> None:
    """Annotations that say little are accepted, and builtins come back exactly under them."""
    values.check_annotation(annotation, "f(), its result")
    value: dict[object, object] | list[object] | None
    value = [{1: (2,)}] if annotation is list else {1: (2,)}
    value = None if annotation is type(None) else value

    assert same(values.encode_checked(value, annotation)[1], value)


def test_two_classes_of_one_name() -> None:
    """A union of two classes that share a name is refused: their labels would be alike."""
    other = dataclass(type("Order", (), {"__annotations__": {"id": str}}))

    with pytest.raises(InvalidDefinition, match="two classes called Order"):
        values.check_annotation(Order | other, "f(), its result")


def test_unhashable_annotation() -> None:
    """An annotation that cannot be a dict key works like any other."""
    annotation = typing.Annotated[tuple[int, ...], ["unhashable"]]

    assert values.encode_checked((1, 2), annotation)[1] == (1, 2)


def test_result_error() -> None:
    """The error for a result names the function and the place, and keeps the value's repr."""
    with pytest.raises(UnencodableResult) as caught:
        values.encode_result({"o": Order("secret", 1.0)}, None, name="charge")

    assert "charge()" in caught.value.message
    assert "result['o'] is of your class" in caught.value.message
    assert caught.value.hint == "Write `def charge(...) -> dict[str, Order]:`."
    assert "secret" not in str(caught.value)
    assert "Order(id='secret'" in vars(caught.value)["value_repr"]


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (Order("A", 1.0), "Order"),
        ([1, [Order("A", 1.0)]], "list[list[Order]]"),
        ({"a": (Order("A", 1.0),)}, "dict[str, tuple[Order, ...]]"),
        ({1: frozenset({Colour.RED})}, "dict[int, frozenset[Colour]]"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_line_to_write(value: object, annotation: str) -> None:
    """The error for a result without annotation holds the line that would make it fit."""
    with pytest.raises(UnencodableResult) as caught:
        values.encode_result(value, None, name="Shop.charge")

    assert f"`def charge(...) -> {annotation}:`" in str(caught.value)


@pytest.mark.parametrize("size", [10, 5000], ids=["short", "long"])
def test_kept_repr_is_bounded(size: int) -> None:
    """At most 4 KiB of a result that cannot be stored are kept."""
    with pytest.raises(UnencodableResult) as caught:
        values.encode_result(["é" * size, len], None, name="f")

    assert len(vars(caught.value)["value_repr"].encode()) <= 4096


def test_repr_that_raises() -> None:
    """A repr that fails does not hide the error that matters."""

    class Bad:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    with pytest.raises(UnencodableResult, match="Bad"):
        values.encode_result(Bad(), None, name="f")


def test_property_that_raises() -> None:
    """A user's code that fails while a value is read is reported as such."""

    class Odd(enum.Enum):
        A = "a"

        @property
        def value(self) -> str:
            raise RuntimeError("broken property")

    with pytest.raises(Unencodable, match="RuntimeError: broken property"):
        values.encode_checked([Odd.A], list[Odd])


def test_struct_with_tag_and_rename() -> None:
    """Tagged unions and renamed fields are respected."""

    class Dog(msgspec.Struct, tag=True, rename="camel"):
        leg_count: int = 4

    class Cat(msgspec.Struct, tag=True, array_like=True):
        lives: int = 9

    for value in (Dog(3), Cat(8)):
        assert values.encode_checked(value, type(value))[1] == value
    both = [Dog(3), Dog(4)]
    assert values.encode_checked(both, list[Dog | Charge])[1] == both


def test_private_attrs() -> None:
    """An attrs class's private attribute comes back."""
    copy = values.encode_checked(Parcel(1.0, b"s"), Parcel)[1]

    assert copy == Parcel(1.0, b"s")
