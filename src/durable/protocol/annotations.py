"""Annotations made fit for msgspec, and refused early where nothing can be done.

msgspec refuses unions that JSON cannot tell apart and has no notion of "any sequence". Our
values know their types, so such annotations are replaced by a `Choice`, which msgspec hands
back to us as a custom type:

    A | B            two dataclasses: instances are labelled with their class's name
    str | date       the untagged value has the right type already
    Sequence[T]      a list or a tuple, whichever was stored
    an odd Enum      one whose values are neither all strings nor all integers

This reaches into generics (`list[A | B]`), but not into the fields of classes, whose
annotations msgspec reads itself.
"""

from __future__ import annotations

import collections.abc
import enum
import types
import typing
from collections.abc import Callable, Iterator
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec
import msgspec.inspect

from durable.errors import InvalidDefinition
from durable.protocol.shapes import is_model, shape_of, type_name

_PROBE: Final = object()
_NODES: Final = (msgspec.inspect.Type, msgspec.inspect.Field)
_SEQUENCES: Final[dict[object, tuple[Any, ...]]] = {
    collections.abc.Sequence: (list, tuple),
    collections.abc.Iterable: (list, tuple, set, frozenset),
    collections.abc.Collection: (list, tuple, set, frozenset),
    collections.abc.Set: (set, frozenset),
}


class _AnyInstance(type):
    """msgspec checks that what our hook returns is an instance of the custom type."""

    def __instancecheck__(cls, instance: object) -> bool:
        return True


class Choice(metaclass=_AnyInstance):
    """Stands in an annotation for one of several types; subclassed for each."""

    members: ClassVar[tuple[Any, ...]] = ()
    text: ClassVar[str] = ""

    @classmethod
    def pick(cls, part: object, convert: Callable[[Any], object]) -> object:
        """`part` as the first member that takes it, those of its own type first."""
        kind = type(part)
        for member in sorted(cls.members, key=lambda m: _class_of(m) is not kind):
            try:
                return convert(member)
            except msgspec.ValidationError:
                continue
        raise ValueError(f"Expected `{cls.text}`, got `{kind.__name__}`")


class _Member(Choice):
    """An odd Enum: its members are found by value."""

    @classmethod
    def pick(cls, part: object, _convert: Callable[[Any], object]) -> object:
        kind = cls.members[0]
        return part if type(part) is kind else kind(part)


def rewrite(annotation: Any) -> Any:
    """The annotation with a `Choice` wherever msgspec needs one.

    Raises:
        TypeError: it still cannot be stored.
    """
    rewritten = _rewritten(annotation)
    reason = _refusal(rewritten)
    if reason:
        raise TypeError(reason)
    return rewritten


def check_annotation(annotation: object, where: str) -> None:
    """Refuse, when a function is decorated, an annotation whose values can never be stored.

    Args:
        annotation: a resolved type; None if there is none.
        where: names the function and the parameter, for the message:
            "checkout(), parameter 'order'" or "checkout(), its result".

    Raises:
        InvalidDefinition: says which part cannot be stored and what to write instead.
    """
    if annotation in (None, object, Any, typing.NoReturn, typing.Never):
        return
    try:
        target = rewrite(annotation)
        labels_of(target)
        foreign = [kind for kind in _customs(target) if not _known(kind)]
    except Exception as e:  # unresolved names in a class's own annotations, and the like
        raise InvalidDefinition(
            f"{where}: `{shown(annotation)}` cannot be stored: {e}", hint=_hint(str(e))
        ) from e
    if foreign:
        held = f", since it holds `{shown(foreign[0])}`" if foreign[0] is not annotation else ""
        raise InvalidDefinition(
            f"{where}: `{shown(annotation)}` cannot be stored{held}", hint=_hint("")
        )


def _hint(reason: str) -> str:
    if "union" in reason:
        return (
            "Inside a class, derive the classes of the union from msgspec.Struct with `tag=True`; "
            "or return the union itself, `-> A | B`."
        )
    return (
        "Use builtins, dataclasses, msgspec.Struct, attrs, enums, NamedTuple, TypedDict or "
        "pydantic models; or leave the annotation out, if it is builtins that are returned."
    )


def labels_of(target: Any) -> dict[str, tuple[type, Any]]:
    """The classes that must be labelled when stored: label, class, and its place in a union.

    Raises:
        TypeError: two classes of one name are in a union.
    """
    labels: dict[str, tuple[type, Any]] = {}
    for choice in _choices(target):
        for member in choice.members:
            kind = _class_of(member)
            if issubclass(choice, _Member) or not isinstance(kind, type) or not shape_of(kind):
                continue
            known = labels.setdefault(kind.__name__, (kind, member))
            if known[0] is not kind:
                raise TypeError(f"the union has two classes called {kind.__name__}; rename one")
    return labels


def shown(annotation: object) -> str:
    """An annotation as a person writes it."""
    if isinstance(annotation, type) and not typing.get_args(annotation):
        return annotation.text if issubclass(annotation, Choice) else type_name(annotation)
    return str(annotation).replace("typing.", "")


def _rewritten(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        odd = _refusal(annotation)
        return _choice(annotation, (annotation,), _Member) if odd else annotation
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    bare = annotation if origin is None else origin
    if bare in _SEQUENCES:
        return _choice(annotation, tuple(_of(kind, args) for kind in _SEQUENCES[bare]))
    if type(annotation).__name__ == "TypeAliasType" and _refusal(annotation):
        return _rewritten(annotation.__value__)
    if origin is None or origin in (Literal, collections.abc.Callable):
        return annotation
    if origin is Annotated:
        return Annotated[(_rewritten(args[0]), *args[1:])]
    members = tuple(arg if arg is Ellipsis else _rewritten(arg) for arg in args)
    if origin in (typing.Union, types.UnionType):
        union: Any = typing.Union[members]  # noqa: UP007  # `|` knows no tuple
        return _choice(annotation, members) if _refusal(union) else union
    return annotation if members == args else origin[members]


def _of(kind: Any, args: tuple[Any, ...]) -> Any:
    if not args:
        return kind
    item = _rewritten(args[0])
    return kind[item, ...] if kind is tuple else kind[item]


def _choice(annotation: object, members: tuple[Any, ...], base: type[Choice] = Choice) -> Any:
    return _AnyInstance("Choice", (base,), {"members": members, "text": shown(annotation)})


def _refusal(annotation: Any) -> str:
    """Why msgspec cannot take the annotation; empty if it can."""
    try:
        msgspec.convert(_PROBE, annotation)
    except msgspec.ValidationError:
        return ""
    except TypeError as e:
        return str(e)
    return ""


def _class_of(member: Any) -> Any:
    """The class that values of a union's member have."""
    if typing.get_origin(member) is Annotated:
        return _class_of(typing.get_args(member)[0])
    if member is None:
        return types.NoneType
    return typing.get_origin(member) or member


def _choices(target: Any) -> Iterator[type[Choice]]:
    """Each `Choice` in a rewritten annotation."""
    if isinstance(target, type) and issubclass(target, Choice):
        yield target
        for member in target.members:
            yield from _choices(member)
    for arg in typing.get_args(target):
        yield from _choices(arg)


def _customs(target: Any) -> Iterator[Any]:
    """The types in an annotation that msgspec does not know by itself."""
    seen: set[int] = set()
    stack: list[object] = [msgspec.inspect.type_info(target)]
    while stack:
        node = stack.pop()
        if id(node) in seen or not isinstance(node, msgspec.Struct | tuple):
            continue
        seen.add(id(node))
        if isinstance(node, msgspec.inspect.CustomType):
            yield node.cls
            if issubclass(node.cls, Choice):
                stack.extend(msgspec.inspect.type_info(m) for m in _infos(node.cls))
        elif isinstance(node, msgspec.inspect.RawType | msgspec.inspect.MemoryViewType):
            yield type(node)
        elif isinstance(node, tuple):
            stack.extend(node)
        elif isinstance(node, _NODES):
            stack.extend(getattr(node, name) for name in node.__struct_fields__)


def _infos(choice: type[Choice]) -> tuple[Any, ...]:
    return () if issubclass(choice, _Member) else choice.members


def _known(kind: Any) -> bool:
    return isinstance(kind, type) and (
        kind is complex or issubclass(kind, Choice) or is_model(kind)
    )
