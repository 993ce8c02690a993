"""How instances of users' classes are taken apart for storing.

Only the class's own declaration is used: fields of dataclasses, msgspec.Structs and attrs
classes, the value of an enum member, the items of a NamedTuple, the fields of a pydantic model.
pydantic is never imported here: a model can only exist once the user has imported it.
"""

from __future__ import annotations

import dataclasses
import enum
import sys
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, cast

import msgspec

_CONTAINERS: Final = (dict, list, set, tuple, frozenset)
# The types of what stands for "no default" in dataclasses, attrs, msgspec, pydantic.
_ABSENT: Final = frozenset(
    {
        "dataclasses._MISSING_TYPE",
        "attr._make._Nothing",
        "attr._make.Factory",
        "msgspec._core.NoDefaultType",
        "pydantic_core._pydantic_core.PydanticUndefinedType",
    }
)

Parts = list[tuple[str, object]]


def _no_parts(_instance: object) -> Parts:
    return []


class Shape(NamedTuple):
    """How one class is stored.

    Attributes:
        kind: an object with named parts, an array or tuple of parts, or one value.
        parts: the parts of an instance, with their names in JSON.
        value: the value of an instance whose kind is `value`.
    """

    kind: Literal["object", "array", "tuple", "value"]
    parts: Callable[[Any], Parts] = _no_parts
    value: Callable[[Any], object] = lambda instance: None


def type_name(cls: type) -> str:
    """`module.qualname`, without `builtins.`."""
    name = cls.__qualname__
    return name if cls.__module__ == "builtins" else f"{cls.__module__}.{name}"


@lru_cache(maxsize=1024)  # bounded: classes made at run time must not be kept for ever
def shape_of(cls: type) -> Shape | None:
    """How instances of `cls` are stored; None if they are not."""
    if issubclass(cls, enum.Enum):
        return Shape("value", value=lambda member: member.value)
    if issubclass(cls, msgspec.Struct):
        return _struct(cls)
    if dataclasses.is_dataclass(cls):
        return Shape("object", _attributes([(f.name, f.name) for f in dataclasses.fields(cls)]))
    if hasattr(cls, "__attrs_attrs__"):
        return Shape("object", _attributes([(a.name, a.name) for a in cls.__attrs_attrs__]))
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return Shape("tuple", lambda instance: list(zip(cls._fields, instance, strict=True)))
    if is_model(cls):
        return _model(cls)
    if cls.__module__ == "pydantic.networks" and cls.__qualname__.endswith(("Url", "Dsn")):
        return Shape("value", value=str)  # only ever read back by a model
    return None


def defaults_of(cls: type) -> dict[str, object]:
    """The defaults of a class's parts, by their names in JSON.

    Of default factories only builtin containers are called: others may do anything.
    """
    if issubclass(cls, msgspec.Struct):
        return _made(
            (f.encode_name, f.default, f.default_factory) for f in msgspec.structs.fields(cls)
        )
    if dataclasses.is_dataclass(cls):
        return _made((f.name, f.default, f.default_factory) for f in dataclasses.fields(cls))
    if is_model(cls):
        models: Any = cls
        fields = models.model_fields.items()
        return _made((_model_key(name, f), f.default, f.default_factory) for name, f in fields)
    if hasattr(cls, "__attrs_attrs__"):
        # attrs keeps a factory inside the default.
        attributes: Any = cls.__attrs_attrs__
        return _made((a.name, a.default, getattr(a.default, "factory", None)) for a in attributes)
    return dict(getattr(cls, "_field_defaults", {}))


def _made(fields: Iterable[tuple[str, object, object]]) -> dict[str, object]:
    defaults: dict[str, object] = {}
    for name, default, factory in fields:
        if factory in _CONTAINERS:
            defaults[name] = cast(Callable[[], object], factory)()
        elif type_name(type(default)) not in _ABSENT:
            defaults[name] = default
    return defaults


def is_model(cls: object) -> bool:
    """Whether `cls` is a pydantic (version 2) model class."""
    pydantic = sys.modules.get("pydantic")
    base = getattr(pydantic, "BaseModel", None)
    return (
        isinstance(cls, type)
        and isinstance(base, type)
        and issubclass(cls, base)
        and hasattr(cls, "model_validate")
    )


def _attributes(names: list[tuple[str, str]]) -> Callable[[object], Parts]:
    def parts(instance: object) -> Parts:
        # A field that was never set has no value to store.
        return [(name, getattr(instance, at)) for name, at in names if hasattr(instance, at)]

    return parts


def _struct(cls: type[msgspec.Struct]) -> Shape:
    names = list(zip(cls.__struct_encode_fields__, cls.__struct_fields__, strict=True))
    config = cls.__struct_config__
    tag = [] if config.tag_field is None else [(config.tag_field, cast(object, config.tag))]

    def parts(instance: msgspec.Struct) -> Parts:
        values = [(name, getattr(instance, at)) for name, at in names]
        return tag + [(name, item) for name, item in values if item is not msgspec.UNSET]

    return Shape("array" if config.array_like else "object", parts)


def _model(cls: Any) -> Shape:
    """Field by field, not by `model_dump`, which would lose the classes of what is nested."""
    names = [(_model_key(name, field), name) for name, field in cls.model_fields.items()]
    if [name for _, name in names] == ["root"]:
        return Shape("value", value=lambda model: model.root)

    def parts(model: Any) -> Parts:
        extra: dict[str, object] = model.model_extra or {}
        return [(key, getattr(model, name)) for key, name in names] + list(extra.items())

    return Shape("object", parts)


def _model_key(name: str, field: Any) -> str:
    """The key under which validation looks for a field."""
    aliases = [field.validation_alias, field.alias]
    aliases += getattr(field.validation_alias, "choices", [])
    return next((alias for alias in aliases if isinstance(alias, str)), name)
