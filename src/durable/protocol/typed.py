"""Codecs for annotations: what `-> Order`, `-> list[int]` or nothing at all stores and reads.

Writing looks at the value alone (`tagging`); the annotation decides when reading. The tree is
untagged to exact builtins first and then converted by msgspec, so that a set, a NaN, a date or
a big integer arrives as such, also inside a dataclass.
"""

from __future__ import annotations

import datetime as dt
import typing
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from durable.protocol.annotations import Choice, labels_of, rewrite, shown
from durable.protocol.located import Undecodable, Unencodable
from durable.protocol.shapes import is_model, type_name
from durable.protocol.tagging import INT64_MAX, TAG, EscapingTagger, Tagger
from durable.protocol.untagging import Cases, untag

_dumps = msgspec.json.Encoder().encode
_loads = msgspec.json.Decoder().decode
_TAG_IN_JSON: Final = b'"$"'
_ANYTHING: Final = frozenset({None, object, Any, typing.NoReturn, typing.Never})
_PLAIN: Final = (bool, int, float, str)  # what JSON says itself
# What untagged trees hold as themselves; anything else msgspec makes out of these.
_EXACT: Final = (
    bytes,
    bytearray,
    dt.datetime,
    dt.date,
    dt.time,
    dt.timedelta,
    Decimal,
    UUID,
)


class _Written(NamedTuple):
    data: bytes
    tree: object
    objects: Sequence[type]


class Codec:
    """Writes and reads the values of one annotation. Use `codec_for`, which keeps them."""

    def __init__(self, annotation: object) -> None:
        self.annotation = annotation
        self.typed = annotation not in _ANYTHING if _hashable(annotation) else True
        self.target = rewrite(annotation) if self.typed else object
        self.plain = annotation if annotation in _PLAIN else None
        members = labels_of(self.target)
        self.labels = {kind: label for label, (kind, _) in members.items()}
        makers = {
            label: lambda tree, member=member: self.convert(tree, member)
            for label, (_, member) in members.items()
        }
        self.cases = Cases(self.typed, makers)

    def encode(self, value: object) -> bytes:
        """The JSON of `value`.

        Raises:
            Unencodable: the value cannot be stored under this annotation.
        """
        return self.write(value).data

    def write(self, value: object) -> _Written:
        try:
            try:
                tagger = Tagger(self.typed, self.labels)
                tree = tagger.tag(value)
                return _Written(_dumps(tree), tree, tagger.objects)
            except UnicodeEncodeError:
                tagger = EscapingTagger(self.typed, self.labels)
                tree = tagger.tag(value)
                return _Written(_dumps(tree), tree, tagger.objects)
        except Unencodable:
            raise
        except RecursionError:
            raise Unencodable("is nested too deep; flatten it, or store ids instead") from None
        except Exception as e:  # users' properties and models run here
            raise Unencodable(f"could not be read: {type(e).__name__}: {e}") from e

    def decode(self, data: bytes) -> object:
        """The value that `data` stands for.

        Raises:
            Undecodable: the data is damaged or does not fit the annotation.
        """
        try:
            tree = _loads(data)
            if _TAG_IN_JSON in data:
                tree = untag(tree, self.cases)
        except (msgspec.DecodeError, UnicodeDecodeError) as e:
            raise Undecodable(f"is damaged: it is not JSON: {e}") from e
        except RecursionError:
            raise Undecodable("is damaged: it is nested too deep") from None
        if not self.typed or type(tree) is self.plain:
            return tree
        return self.convert(tree, self.target)

    def checked(self, value: object) -> tuple[bytes, object]:
        """The JSON of `value` and the copy that it decodes to, which is equal to the value.

        Raises:
            Unencodable: as `encode`; or the copy would differ from the value.
        """
        written = self.write(value)
        try:
            copy = self.decode(written.data)
        except Undecodable as e:
            raise e.as_unencodable() from e
        if self.typed:
            again = self.write(copy)
            # An int where a float is annotated may become one: 3 == 3.0. Nothing else may.
            if again.tree != written.tree or again.objects != written.objects:
                raise Unencodable(self._difference(value, copy, written, again))
        return written.data, copy

    def convert(self, tree: object, target: Any, *, lax: bool = False) -> object:
        """An untagged tree as the type `target` says.

        Args:
            lax: the tree was typed by a person: dates as text, dict keys as strings.
        """
        try:
            return self._convert(tree, target, lax)
        except msgspec.ValidationError as e:
            raise Undecodable(f"does not fit `{shown(self.annotation)}`: {e}") from e
        except RecursionError:
            raise Undecodable("is nested too deep") from None

    def _convert(self, tree: object, target: Any, lax: bool) -> object:
        def hook(kind: Any, part: object) -> object:
            if isinstance(kind, type) and issubclass(kind, Choice):
                return kind.pick(part, lambda member: self._convert(part, member, lax))
            if is_model(kind):
                return part if type(part) is kind else _validated(kind, part)
            if isinstance(part, typing.get_origin(kind) or kind):
                return part
            raise ValueError(f"Expected `{shown(kind)}`, got `{type(part).__name__}`")

        builtin_types = () if lax else _EXACT
        return msgspec.convert(
            tree, target, builtin_types=builtin_types, str_keys=lax, dec_hook=hook
        )

    def _difference(self, value: object, copy: object, written: _Written, again: _Written) -> str:
        """Why a value is refused, without showing it."""
        lost = [kind for kind in written.objects if kind not in again.objects]
        if type(value) is not type(copy):
            change = f"{type_name(type(value))} would come back as {type_name(type(copy))}"
        elif lost:
            change = f"it holds {type_name(lost[0])}, which would not come back"
        else:
            place = _first_difference(written.tree, again.tree)
            change = f"its part {place} would come back different" if place else "it would change"
        return (
            f"does not fit `{shown(self.annotation)}` exactly: {change}; "
            "make the annotation say what it is"
        )


def _first_difference(one: Any, other: Any) -> str:
    """The place where two trees differ first, as code; empty if it is their root."""
    if type(one) is type(other) is dict and one.keys() == other.keys():
        for key in one:
            if one[key] != other[key]:
                part = "" if key == "v" and TAG in one else f"[{key!r:.40}]"
                return part + _first_difference(one[key], other[key])
    if type(one) is type(other) is list and len(one) == len(other):
        for index, (item, twin) in enumerate(zip(one, other, strict=True)):
            if item != twin:
                return f"[{index}]{_first_difference(item, twin)}"
    return ""


def _validated(model: Any, part: object) -> object:
    try:
        return model.model_validate(part)
    except ValueError as e:
        # Without the input, which pydantic's own text shows: it may be a secret.
        errors: Any = getattr(e, "errors", None)
        if errors is None:
            raise
        first = errors(include_input=False, include_url=False)[0]
        place = ".".join(str(name) for name in first["loc"])
        raise ValueError(f"{first['msg']} - at `{place}` of {type_name(model)}") from None


def _hashable(annotation: object) -> bool:
    try:
        hash(annotation)
    except TypeError:
        return False
    return True


# Bounded, since annotations may be made at run time.
_cached = lru_cache(maxsize=2048)(Codec)


def writer(annotation: object) -> Codec:
    """`codec_for`, to write with.

    Raises:
        Unencodable: the annotation can never be stored.
    """
    try:
        return codec_for(annotation)
    except TypeError as e:
        raise Unencodable(f"cannot be stored as `{shown(annotation)}`: {e}") from e


def reader(annotation: object) -> Codec:
    """`codec_for`, to read with.

    Raises:
        Undecodable: the annotation can never be stored.
    """
    try:
        return codec_for(annotation)
    except TypeError as e:
        raise Undecodable(f"cannot be read as `{shown(annotation)}`: {e}") from e


def codec_for(annotation: object) -> Codec:
    """The codec of an annotation; None: there is none.

    Raises:
        TypeError: the annotation can never be stored; see `annotations.check_annotation`.
    """
    try:
        return _cached(annotation)
    except TypeError:
        if _hashable(annotation):
            raise
        return Codec(annotation)


def encode_checked(value: object, annotation: object = None) -> tuple[bytes, object]:
    """The JSON of a value, and its decoded copy, which is equal to it.

    Raises:
        Unencodable: the value cannot be stored, or would come back different.
    """
    kind = type(value)
    # The common scalars are immutable and written as they are: the copy is the value.
    if annotation is None or annotation is kind:
        if value is None:
            return b"null", None
        if kind is str or kind is bool:
            try:
                return _dumps(value), value
            except UnicodeEncodeError:
                pass
        elif kind is int and -INT64_MAX <= value < INT64_MAX:  # type: ignore[operator]  # `kind is int` narrows nothing for mypy
            return _dumps(value), value
    return writer(annotation).checked(value)
