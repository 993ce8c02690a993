"""Python values to trees that JSON can hold, exactly and readably.

JSON has fewer types than Python, so what JSON cannot say is written as an object with the key
`$`, which holds one of a closed set of tags: `{"$": "tuple", "v": [1, 2]}`. A dict of the user's
that has a key `$`, or a key that is not a string, is written as pairs, so nothing is ambiguous.
No tag names something to import; `untagging` reads them.

Types are compared exactly: an IntEnum is not an int here, a namedtuple not a tuple. Instances
of users' classes are taken apart as `shapes` says, and only where an annotation will bring the
class back.
"""

from __future__ import annotations

import base64
import datetime as dt
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from decimal import Decimal
from types import NoneType
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from durable.protocol.located import Unencodable
from durable.protocol.shapes import Shape, shape_of, type_name

TAG: Final = "$"
DEPTH_MAX: Final = 100  # levels; reading one takes up to 5 of the 1,000 calls Python nests
INT64_MAX: Final = 2**63  # beyond it JSON readers, msgspec's too, turn integers into floats
DECIMAL_BITS_MAX: Final = 2000  # longer integers are hex: Python limits decimal digits

_dumps = msgspec.json.Encoder().encode


class Tagger:
    """Turns one value into a tree for JSON. Made anew for each value.

    Args:
        typed: whether instances of users' classes may occur.
        cases: classes to be labelled, since the annotation has a union of several.

    Attributes:
        objects: the classes of the instances met, in order.
    """

    as_is = frozenset({NoneType, bool, str})
    plain_keys = True

    def __init__(self, typed: bool = False, cases: Mapping[type, str] | None = None) -> None:
        self.typed = typed
        self.cases = cases or {}
        self.objects: list[type] = []

    def tag(self, value: object, depth: int = 0) -> object:
        """The tree of `value`.

        Raises:
            Unencodable: the value, or a part of it, cannot be stored.
        """
        kind = type(value)
        if kind in self.as_is:
            return value
        leaf = _LEAVES.get(kind)
        if leaf is not None:
            return leaf(value)
        container = _CONTAINERS.get(kind)
        if container is not None:
            return container(self, value, depth)
        return self.instance(value, depth)

    def items(self, values: Iterable[object], depth: int, form: str = "{}") -> list[object]:
        depth = _deeper(depth)
        out: list[object] = []
        as_is = self.as_is
        try:
            for item in values:
                # Not a comprehension: on an error the length tells the place.
                out.append(item if type(item) in as_is else self.tag(item, depth))  # noqa: PERF401  # as said above
        except Unencodable as e:
            e.held_by(f"[{len(out)}]", form)
            raise
        return out

    def mapping(self, value: dict[Any, object], depth: int) -> object:
        if self.plain_keys and TAG not in value and all(type(key) is str for key in value):
            return self.named(value.items(), depth, "[{!r:.40}]", "dict[str, {}]")
        return {TAG: "dict", "v": self.pairs(value, depth)}

    def pairs(self, value: dict[Any, object], depth: int) -> list[object]:
        depth = _deeper(depth)
        out: list[object] = []
        for key, item in value.items():
            try:
                out.append([self.tag(key, depth), self.tag(item, depth)])
            except Unencodable as e:
                e.held_by(f"[{key!r:.40}]", f"dict[{type(key).__name__}, {{}}]")
                raise
        return out

    def named(
        self, parts: Iterable[tuple[str, object]], depth: int, place: str, form: str = "{}"
    ) -> object:
        """Parts that have plain names: of a dict, or of an object."""
        depth = _deeper(depth)
        out: dict[str, object] = {}
        as_is = self.as_is
        name = ""
        try:
            for name, item in parts:
                out[name] = item if type(item) in as_is else self.tag(item, depth)
        except Unencodable as e:
            e.held_by(place.format(name), form)
            raise
        return out

    def instance(self, value: object, depth: int) -> object:
        kind: type = type(value)
        shape = shape_of(kind)
        if shape is None:
            raise Unencodable(
                f"is of type {type_name(kind)}, which is not stored: {_advice(value)}"
            )
        if not self.typed:
            raise Unencodable(
                f"is of your class {type_name(kind)}, which is stored only where an annotation "
                "names it",
                missing=kind.__qualname__,
            )
        self.objects.append(kind)
        tree = self.shaped(value, shape, depth)
        label = self.cases.get(kind)
        return tree if label is None else {TAG: "case", "of": label, "v": tree}

    def shaped(self, value: object, shape: Shape, depth: int) -> object:
        if shape.kind == "value":
            return self.tag(shape.value(value), depth)
        parts = shape.parts(value)
        if shape.kind == "array":
            return self.items([item for _, item in parts], depth)
        if shape.kind == "tuple":  # not as an array: the tuple may be a key
            return {TAG: "tuple", "v": self.items([item for _, item in parts], depth)}
        if self.plain_keys and all(name != TAG for name, _ in parts):
            return self.named(parts, depth, ".{}")
        return {TAG: "dict", "v": self.pairs(dict(parts), depth)}


class EscapingTagger(Tagger):
    """For the rare values with lone surrogates, which UTF-8 cannot hold; slower."""

    as_is = frozenset({NoneType, bool})
    plain_keys = False


def _advice(value: object) -> str:
    """What to write in place of a value of a type that is not stored."""
    for base in (bool, int, float, str, bytes, list, tuple, dict, set, frozenset):
        if isinstance(value, base):
            return f"pass `{base.__name__}(...)` of it"
    if isinstance(value, Awaitable):
        return "it was never awaited, so write `await` before it"
    if isinstance(value, Mapping):
        return "pass `dict(...)` of it"
    if isinstance(value, Iterable):
        return "pass `list(...)` of it"
    if hasattr(type(value), "__fspath__"):
        return "pass `str(...)` of it"
    return (
        "use builtins, or a dataclass, msgspec.Struct, attrs class, pydantic model, enum or "
        "NamedTuple that the annotation names"
    )


def _deeper(depth: int) -> int:
    if depth >= DEPTH_MAX:
        raise Unencodable(
            f"is nested more than {DEPTH_MAX} levels deep, or contains itself; "
            "flatten it, or store ids in place of nested values"
        )
    return depth + 1


def _string(value: str) -> object:
    try:
        value.encode()
    except UnicodeEncodeError:
        return {TAG: "str", "v": value.encode("unicode_escape").decode("ascii")}
    return value


def _integer(value: int) -> object:
    if -INT64_MAX <= value < INT64_MAX:
        return value
    text = str(value) if value.bit_length() <= DECIMAL_BITS_MAX else hex(value)
    return {TAG: "int", "v": text}


def _float(value: float) -> object:
    return value if math.isfinite(value) else {TAG: "float", "v": repr(value)}


def _complex(value: complex) -> object:
    return {TAG: "complex", "v": [_float(value.real), _float(value.imag)]}


def _bytes(value: bytes | bytearray) -> object:
    return {TAG: type(value).__name__, "v": base64.b64encode(value).decode("ascii")}


def _list(tagger: Tagger, value: list[object], depth: int) -> object:
    return tagger.items(value, depth, "list[{}]")


def _dict(tagger: Tagger, value: dict[Any, object], depth: int) -> object:
    return tagger.mapping(value, depth)  # which digests override


def _tuple(tagger: Tagger, value: tuple[object, ...], depth: int) -> object:
    return {TAG: "tuple", "v": tagger.items(value, depth, "tuple[{}, ...]")}


def _set(tagger: Tagger, value: set[object] | frozenset[object], depth: int) -> object:
    # Sorted, so that the same set gives the same text in every process.
    kind = type(value).__name__
    form, known = f"{kind}[{{}}]", len(tagger.objects)
    members = tagger.items(value, depth, form)
    if len(tagger.objects) > known:
        # So are the classes of instances, which are compared one by one.
        ordered = sorted(zip(members, value, strict=True), key=lambda both: _dumps(both[0]))
        del tagger.objects[known:]
        return {TAG: kind, "v": tagger.items([item for _, item in ordered], depth, form)}
    return {TAG: kind, "v": sorted(members, key=_dumps)}


def _text(value: Decimal | UUID | dt.date) -> object:
    return {TAG: type(value).__name__.lower(), "v": str(value)}


def _timedelta(value: dt.timedelta) -> object:
    return {TAG: "timedelta", "v": [value.days, value.seconds, value.microseconds]}


def _moment(value: dt.datetime | dt.time) -> object:
    """ISO text, and beside it what ISO text cannot say: the zone's name, the fold.

    A zone that is neither a ZoneInfo nor a datetime.timezone is kept as its offset.
    """
    zone = value.tzinfo
    out: dict[str, object] = {TAG: type(value).__name__, "v": value.isoformat()}
    if isinstance(zone, ZoneInfo) and zone.key is not None:
        out["zone"] = zone.key
    elif isinstance(zone, dt.timezone):
        name, offset = zone.tzname(None), zone.utcoffset(None)
        if name != dt.timezone(offset).tzname(None):
            out["name"] = name
    elif zone is not None and value.utcoffset() is None:
        raise Unencodable(f"has the zone {zone!r:.80}, which has no offset; use zoneinfo.ZoneInfo")
    if value.fold:
        out["fold"] = 1
    return out


_LEAVES: Final[dict[type, Callable[[Any], object]]] = {
    str: _string,
    int: _integer,
    float: _float,
    complex: _complex,
    bytes: _bytes,
    bytearray: _bytes,
    dt.datetime: _moment,
    dt.time: _moment,
    dt.date: _text,
    dt.timedelta: _timedelta,
    Decimal: _text,
    UUID: _text,
}
_CONTAINERS: Final[dict[type, Callable[[Tagger, Any, int], object]]] = {
    list: _list,
    tuple: _tuple,
    set: _set,
    frozenset: _set,
    dict: _dict,
}
