"""The trees that `tagging` makes, read back into Python values.

Reading never runs or imports anything that the data names: the tags are the closed set below,
and `case` only chooses among the classes that the annotation lists (`Cases`).
"""

from __future__ import annotations

import base64
import datetime as dt
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

from durable.protocol.located import Undecodable
from durable.protocol.tagging import TAG


class Cases(NamedTuple):
    """What the annotation knows about the tree.

    Attributes:
        typed: a class may be made of each part; members of sets need not be hashable yet.
        makers: for each label of a union's class, what makes an instance from its tree.
    """

    typed: bool
    makers: Mapping[str, Callable[[object], object]]


_NO_CASES: Final = Cases(typed=False, makers={})
_NESTED: Final = frozenset({list, dict})
_ZONE_KEY = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*")  # stays inside the zone database


def untag(tree: Any, cases: Cases = _NO_CASES) -> object:
    """The value of a tree that came out of JSON.

    Raises:
        Undecodable: a tag is unknown, or what it holds is not what that tag holds.
    """
    kind = type(tree)
    if kind is list:
        return _items(tree, cases)
    if kind is not dict:
        return tree
    if TAG in tree:
        return _tagged(tree, cases)
    out: dict[str, object] = {}
    key = ""
    try:
        for key, item in tree.items():
            out[key] = untag(item, cases) if type(item) in _NESTED else item
    except Undecodable as e:
        e.inside(f"[{key!r}]")
        raise
    return out


def _items(tree: Any, cases: Cases) -> list[object]:
    if type(tree) is not list:
        raise Undecodable(f"is damaged: a list was expected, not {type(tree).__name__}")
    out: list[object] = []
    try:
        for item in tree:
            # Not a comprehension: on an error the length tells the place.
            out.append(untag(item, cases) if type(item) in _NESTED else item)  # noqa: PERF401  # as said above
    except Undecodable as e:
        e.inside(f"[{len(out)}]")
        raise
    return out


def _tagged(tree: dict[str, Any], cases: Cases) -> object:
    tag = tree[TAG]
    try:
        if tag in _LEAVES:
            return _LEAVES[tag](tree["v"])
        if tag in _MOMENTS:
            return _moment(tree, _MOMENTS[tag])
        if tag in _CONTAINERS:
            return _CONTAINERS[tag](tree["v"], cases)
        if tag == "case":
            return _case(tree, cases)
    except (TypeError, ValueError, LookupError, ArithmeticError) as e:
        raise Undecodable(f"is a damaged {tag!r:.40}: {type(e).__name__}: {e}") from e
    raise Undecodable(
        f"has the unknown tag {tag!r:.40}; a newer version of durable may have written it"
    )


def _case(tree: dict[str, Any], cases: Cases) -> object:
    make = cases.makers.get(tree["of"])
    if make is None:
        raise Undecodable(f"is a {tree['of']!r:.60}, which the annotation does not list (any more)")
    return make(untag(tree["v"], cases))


def _pairs(pairs: Any, cases: Cases) -> dict[object, object]:
    out: dict[object, object] = {}
    for key, item in pairs:
        made = untag(key, cases)
        try:
            out[made] = untag(item, cases)
        except TypeError as e:
            raise Undecodable(
                "has keys that cannot be made again; use builtins, enums or NamedTuples as keys"
            ) from e
    return out


def _members(members: Any, cases: Cases, kind: type[set[Any] | frozenset[Any]]) -> object:
    found = _items(members, cases)
    try:
        return kind(found)
    except TypeError:
        if not cases.typed:
            raise
        return found  # the annotation makes the set, once it has made the members


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _complex(parts: Any) -> complex:
    real, imag = (untag(part) for part in parts)
    if not isinstance(real, float) or not isinstance(imag, float):
        raise TypeError("two floats were expected")
    return complex(real, imag)


def _moment(tree: dict[str, Any], kind: type[dt.datetime | dt.time]) -> object:
    value = kind.fromisoformat(tree["v"])
    return value.replace(tzinfo=_zone(tree, value.tzinfo), fold=tree.get("fold", 0))


def _zone(tree: dict[str, Any], offset: dt.tzinfo | None) -> dt.tzinfo | None:
    if "zone" in tree:
        key = tree["zone"]
        if not _ZONE_KEY.fullmatch(key):
            raise ValueError(f"{key!r:.40} is not a time zone's name")
        return ZoneInfo(key)  # missing on this machine: a KeyError that names it
    if "name" in tree and isinstance(offset, dt.timezone):
        return dt.timezone(offset.utcoffset(None), tree["name"])
    return offset


_LEAVES: Final[dict[str, Callable[[Any], object]]] = {
    "bytearray": lambda text: bytearray(_bytes(text)),
    "bytes": _bytes,
    "complex": _complex,
    "date": dt.date.fromisoformat,
    "decimal": Decimal,
    "float": float,
    "int": lambda text: int(text, 0),
    "str": lambda text: text.encode("ascii").decode("unicode_escape"),
    "timedelta": lambda parts: dt.timedelta(*parts),
    "uuid": UUID,
}
_MOMENTS: Final[dict[str, type[dt.datetime | dt.time]]] = {
    "datetime": dt.datetime,
    "time": dt.time,
}
_CONTAINERS: Final[dict[str, Callable[[Any, Cases], object]]] = {
    "dict": _pairs,
    "frozenset": lambda members, cases: _members(members, cases, frozenset),
    "set": lambda members, cases: _members(members, cases, set),
    "tuple": lambda items, cases: tuple(_items(items, cases)),
}
