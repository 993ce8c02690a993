"""The values of calls as JSON, and back, exactly.

With an annotation a value is read by type; without one builtins still come back as they were,
through a closed set of tags (see `tagging`). What a workflow receives is always the decoded
copy, so live and replay see the same.
"""

from __future__ import annotations

from typing import Final

import msgspec

from durable.errors import InvalidArguments, UnencodableResult
from durable.protocol.annotations import check_annotation
from durable.protocol.calls import call_from_json, decode_call, encode_call, parsed
from durable.protocol.located import Undecodable, Unencodable
from durable.protocol.typed import encode_checked, reader, writer

__all__ = [
    "Undecodable",
    "Unencodable",
    "call_from_json",
    "check_annotation",
    "decode",
    "decode_call",
    "encode",
    "encode_argument",
    "encode_call",
    "encode_checked",
    "encode_result",
    "parsed",
]

REPR_BYTES_MAX: Final = 4096  # of a result that cannot be stored, kept for repair


def encode(value: object, annotation: object = None) -> bytes:
    """The JSON of a value. It is not checked against the annotation: see `encode_checked`.

    Args:
        value: what to store.
        annotation: its resolved type; None if there is none.

    Raises:
        Unencodable: the value, or a part of it, cannot be stored.
    """
    return writer(annotation).encode(value)


def encode_result(value: object, annotation: object, *, name: str) -> tuple[bytes, object]:
    """`encode_checked` for what a step or workflow called `name` returned.

    Raises:
        UnencodableResult: with the line to write; `value_repr` holds the value's repr, cut at
            4 KiB, so that the work is not lost.
    """
    try:
        return encode_checked(value, annotation)
    except Unencodable as e:
        raise _unencodable_result(e, value, name) from e


def encode_argument(
    value: object,
    what: str,
    annotation: object = None,
    *,
    hint: str = "builtins, datetimes, Decimals and UUIDs are stored as they are",
) -> msgspec.Raw:
    """A value that was given, as it is stored.

    Args:
        value: checked against the annotation, if there is one.
        what: it is; the message of the error begins with this.
        annotation: None if its type is not known.
        hint: what to do if it cannot be stored.

    Raises:
        InvalidArguments: it cannot be, or does not fit.
    """
    try:
        data, _ = encode_checked(value, annotation)
    except Unencodable as e:
        raise InvalidArguments(f"{what} cannot be stored: {e.said_of('value')}", hint=hint) from e
    return msgspec.Raw(data)


def decode(data: bytes | msgspec.Raw, annotation: object = None) -> object:
    """The value that `encode` wrote under the same annotation.

    Raises:
        Undecodable: the data is damaged or does not fit the annotation (any more).
    """
    return reader(annotation).decode(data if type(data) is bytes else bytes(data))


def _unencodable_result(error: Unencodable, value: object, name: str) -> UnencodableResult:
    line = f"def {name.rpartition('.')[2]}(...) -> {error.missing}:" if error.missing else ""
    result = UnencodableResult(
        f"{name}() returned a value that cannot be stored: {error.said_of('result')}",
        hint=f"Write `{line}`." if line else "Correct what it returns, or its annotation.",
    )
    result.__dict__["value_repr"] = _short_repr(value)
    return result


def _short_repr(value: object) -> str:
    try:
        text = repr(value)
    except Exception as e:  # noqa: BLE001  # a user's __repr__ may raise anything
        text = f"<{type(value).__qualname__}, whose repr raised {type(e).__name__}>"
    return text.encode(errors="backslashreplace")[:REPR_BYTES_MAX].decode(errors="ignore")
