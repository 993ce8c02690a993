"""Digests of calls: whether the code still asks what the record answers.

The canonical form forgives what does not change a call's meaning: the order of keywords, dict
keys and sets, an argument or a field that equals its default (so adding a defaulted one strands
no run), how a class is called. `self` and whatever cannot be stored (a session, a client) enter
by the name of their type. It does not depend on the process, its hash seed or the interpreter.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec

from durable.protocol.shapes import Shape, defaults_of, shape_of, type_name
from durable.protocol.tagging import INT64_MAX, TAG, EscapingTagger, Tagger

SCHEMA: Final = "1"  # raise it when the canonical form changes: older digests then only warn
DIGEST_BYTES: Final = 12
PLANS_MAX: Final = 4096  # signatures remembered; a function has one

_dumps = msgspec.json.Encoder().encode
_UTF8: Final = ("utf-8", "surrogatepass")
_NO_HINTS: Final[Mapping[str, object]] = {}


def of_call(
    name: str,
    signature: inspect.Signature,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    hints: Mapping[str, object] = _NO_HINTS,
) -> str:
    """The digest of a call, `<schema>:<hex>`.

    Args:
        name: of the function.
        signature: of the function. Whether the arguments fit it is not checked here.
        args: positional arguments.
        kwargs: keyword arguments.
        hints: resolved annotations: an int for a `float` parameter counts as that float.
    """
    plan = _plan_of(signature)
    parts: list[bytes] = []
    for key, value in _bound(plan, args, kwargs):
        if key == plan.self_name:
            data = _opaque(value)
        elif type(value) is int and hints.get(key) is float:
            data = canonical(_as_float(value))
        else:
            data = canonical(value)
        if plan.defaults.get(key) != data:
            parts.append(b"%b=%b" % (key.encode(*_UTF8), data))
    parts.sort()
    # A length before each part: no text can pretend to be two parts.
    body = b"".join([b"%d:%b" % (len(part), part) for part in (name.encode(*_UTF8), *parts)])
    return f"{SCHEMA}:{blake2b(body, digest_size=DIGEST_BYTES).hexdigest()}"


def comparable(a: str, b: str) -> bool:
    """Whether two digests were made by the same rules, so that a difference means something."""
    schema, colon, _ = a.partition(":")
    return bool(schema and colon) and b.startswith(f"{schema}:")


def canonical(value: object) -> bytes:
    """The canonical form of one argument. Never raises."""
    kind = type(value)
    try:
        try:
            if kind is str or (kind is int and -INT64_MAX <= value < INT64_MAX):  # type: ignore[operator]  # `kind is int` narrows nothing for mypy
                return _dumps(value)  # what the tagger leaves as it is, without making one
            return _dumps(_Canonical().tag(value))
        except UnicodeEncodeError:
            return _dumps(_EscapingCanonical().tag(value))
    except Exception:  # noqa: BLE001  # endless nesting, or a user's property that raises
        return _opaque(value)


class _Canonical(Tagger):
    """A tagger for comparing: sorted, without defaults and class names."""

    def mapping(self, value: dict[Any, object], depth: int) -> object:
        if self.plain_keys and TAG not in value and all(type(key) is str for key in value):
            return self.named(sorted(value.items(), key=_key), depth, "")
        return {TAG: "dict", "v": sorted(self.pairs(value, depth), key=_dumps)}

    def instance(self, value: object, depth: int) -> object:
        kind: type = type(value)
        shape = shape_of(kind)
        return _opaque_tree(value) if shape is None else self.shaped(value, shape, depth)

    def shaped(self, value: object, shape: Shape, depth: int) -> object:
        if shape.kind == "value":
            return self.tag(shape.value(value), depth)
        kind: type = type(value)
        defaults = _canonical_defaults(kind)
        trees: Any = self.named(sorted(shape.parts(value), key=_key), depth, "")
        return {
            name: tree
            for name, tree in trees.items()
            if name not in defaults or _dumps(tree) != defaults[name]
        }


class _EscapingCanonical(_Canonical, EscapingTagger):
    """For values with lone surrogates."""


class _Plan(NamedTuple):
    """What binding a call to one signature needs, found once."""

    positional: tuple[str, ...]
    self_name: str | None
    defaults: dict[str, bytes]


# By identity, since hashing a signature costs more than a digest. The signature is kept, so its
# id cannot pass to another.
_plans: dict[int, tuple[inspect.Signature, _Plan]] = {}


def _plan_of(signature: inspect.Signature) -> _Plan:
    kept = _plans.get(id(signature))
    if kept is not None:
        return kept[1]
    plan = _planned(signature)
    if len(_plans) >= PLANS_MAX:
        _plans.clear()
    _plans[id(signature)] = (signature, plan)
    return plan


def _planned(signature: inspect.Signature) -> _Plan:
    parameters = signature.parameters.values()
    positional = tuple(
        p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    )
    defaults = {p.name: canonical(p.default) for p in parameters if p.default is not p.empty}
    has_self = positional[:1] == ("self",)
    return _Plan(positional, "self" if has_self else None, defaults)


def _bound(
    plan: _Plan, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> list[tuple[str, object]]:
    bound = list(zip(plan.positional, args, strict=False))
    if len(args) > len(plan.positional):
        bound.append(("*", args[len(plan.positional) :]))
    bound.extend(kwargs.items())
    return bound


@lru_cache(maxsize=1024)
def _canonical_defaults(cls: type) -> dict[str, bytes]:
    return {name: canonical(default) for name, default in defaults_of(cls).items()}


def _as_float(value: int) -> float | int:
    as_float = float(value) if abs(value) < 2**1000 else value
    return as_float if as_float == value else value


def _opaque_tree(value: object) -> object:
    return {TAG: "opaque", "v": type_name(type(value))}


def _opaque(value: object) -> bytes:
    return _dumps(_opaque_tree(value))


def _key(item: tuple[str, object]) -> str:
    return item[0]
