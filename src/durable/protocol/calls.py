"""The arguments of a call as JSON: `{"args": [...], "kwargs": {...}}`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from durable.errors import InvalidArguments
from durable.protocol.located import Located, Undecodable, Unencodable
from durable.protocol.typed import encode_checked, reader
from durable.protocol.untagging import untag

Call = tuple[tuple[object, ...], dict[str, object]]
Hints = Mapping[str, object]

_Kind = inspect.Parameter
_POSITIONAL = (_Kind.POSITIONAL_ONLY, _Kind.POSITIONAL_OR_KEYWORD)


class _Stored(msgspec.Struct):
    args: list[msgspec.Raw] = []
    kwargs: dict[str, msgspec.Raw] = {}


_stored = msgspec.json.Decoder(_Stored)


def encode_call(
    signature: inspect.Signature,
    hints: Hints,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    *,
    name: str = "function",
) -> bytes:
    """The JSON of a call's arguments, as they were given: defaults are not filled in.

    Args:
        signature: of the function.
        hints: its resolved annotations; a parameter without one is left out.
        args: positional arguments.
        kwargs: keyword arguments.
        name: of the function, for messages.

    Raises:
        InvalidArguments: they do not fit the signature or an annotation, or cannot be stored.
    """
    _fit(signature, args, kwargs, name)
    stored = _Stored()
    for key, value, annotation in _each(signature, hints, args, kwargs):
        try:
            raw = msgspec.Raw(encode_checked(value, annotation)[0])
        except Unencodable as e:
            raise InvalidArguments(_about(name, signature, key, e)) from e
        if isinstance(key, int):
            stored.args.append(raw)
        else:
            stored.kwargs[key] = raw
    return msgspec.json.encode(stored)


def decode_call(
    data: bytes | msgspec.Raw,
    signature: inspect.Signature,
    hints: Hints,
    *,
    name: str = "function",
) -> Call:
    """The arguments that `encode_call` stored.

    Raises:
        Undecodable: the data is damaged, or no longer fits the function.
    """
    try:
        stored = _stored.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        raise Undecodable(f"is damaged: {e}") from e
    try:
        _fit(signature, stored.args, stored.kwargs, name)
    except InvalidArguments as e:
        raise Undecodable(f"no longer fits the function: {e.message}") from e
    args: list[object] = []
    kwargs: dict[str, object] = {}
    for key, raw, annotation in _each(signature, hints, stored.args, stored.kwargs):
        try:
            value = reader(annotation).decode(bytes(raw))
        except Undecodable as e:
            e.inside(f"[{key!r}]")
            raise
        if isinstance(key, int):
            args.append(value)
        else:
            kwargs[key] = value
    return tuple(args), kwargs


def parsed(text: bytes | str) -> Any:
    """JSON that a person typed. A name that stands twice in one object is no slip to pass over.

    Raises:
        InvalidArguments: it is not JSON, or has such a name.
    """
    try:
        return json.loads(text, object_pairs_hook=_each_once)
    except (ValueError, RecursionError) as e:
        raise InvalidArguments(f"the input is not JSON: {e}") from e


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidArguments(
            f"the input has {twice!r} twice in one object", hint="leave one of the two out"
        )
    return found


def call_from_json(
    text: bytes | str, signature: inspect.Signature, hints: Hints, *, name: str = "function"
) -> Call:
    """The arguments that a person typed: a JSON object is keywords, a JSON array positional.

    Each is read by its annotation, and more leniently than stored data: dates are text, lists
    may stand for tuples and sets, keys of dicts are strings.

    Raises:
        InvalidArguments: it is not JSON, or does not fit the signature or an annotation.
    """
    given = parsed(text)
    if not isinstance(given, dict | list):
        raise InvalidArguments(
            "the input must be a JSON object (keyword arguments) or a JSON array (positional "
            f"arguments) for {name}{signature}, not {type(given).__name__}"
        )
    given_args = tuple(given) if isinstance(given, list) else ()
    given_kwargs = given if isinstance(given, dict) else {}
    _fit(signature, given_args, given_kwargs, name)
    args: list[object] = []
    kwargs: dict[str, object] = {}
    for key, tree, annotation in _each(signature, hints, given_args, given_kwargs):
        try:
            codec = reader(annotation)
            value = codec.convert(untag(tree, codec.cases), codec.target, lax=True)
        except Undecodable as e:
            raise InvalidArguments(_about(name, signature, key, e)) from e
        except RecursionError:
            raise InvalidArguments(f"the input of {name}{signature} is nested too deeply") from None
        if isinstance(key, int):
            args.append(value)
        else:
            kwargs[key] = value
    return tuple(args), kwargs


def _fit(signature: inspect.Signature, args: Any, kwargs: Mapping[str, Any], name: str) -> None:
    try:
        signature.bind(*args, **kwargs)
    except TypeError as e:
        # bind names parameters, never values: no secret gets into the message.
        raise InvalidArguments(f"the arguments do not fit {name}{signature}: {e}") from None


def _each(
    signature: inspect.Signature, hints: Hints, args: Any, kwargs: Mapping[str, Any]
) -> Iterator[tuple[int | str, Any, object]]:
    """Index or keyword, argument and annotation of each argument of a call that fits."""
    parameters = signature.parameters.values()
    positional = [p.name for p in parameters if p.kind in _POSITIONAL]
    rest = {p.kind: p.name for p in parameters}
    for index, value in enumerate(args):
        at = positional[index] if index < len(positional) else rest[_Kind.VAR_POSITIONAL]
        yield index, value, hints.get(at)
    for key, value in kwargs.items():
        known = key in signature.parameters
        yield key, value, hints.get(key if known else rest[_Kind.VAR_KEYWORD])


def _about(name: str, signature: inspect.Signature, key: int | str, error: Located) -> str:
    parameters = list(signature.parameters)
    at = parameters[min(key, len(parameters) - 1)] if isinstance(key, int) else key
    missing = error.missing if isinstance(error, Unencodable) else None
    line = f"; write `{at}: {missing}`" if missing else ""
    return f"the arguments do not fit {name}{signature}: {error.said_of(at)}{line}"
