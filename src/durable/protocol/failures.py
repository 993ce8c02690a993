"""Errors as data: recorded from an exception, rebuilt as an exception.

What user code sees is always rebuilt from the record, live and on replay, so both meet the same
class in the same handler. The class is looked up only among those already imported, and its
code is not run (see `raised`), except `__str__`: if the rebuilt error does not say what the
original said, a `StepFailed` stands for it.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from durable.errors import StepFailed
from durable.protocol import raised
from durable.protocol.located import Unencodable
from durable.protocol.typed import codec_for

MESSAGE_BYTES_MAX: Final = 8 * 1024
TRACEBACK_BYTES_MAX: Final = 8 * 1024
VALUE_BYTES_MAX: Final = 16 * 1024  # of one argument or attribute
TOTAL_BYTES_MAX: Final = 64 * 1024  # of one record, everything nested in it included
FRAMES_MAX: Final = 100  # of a traceback, the innermost: endless recursion has a thousand
NOTES_MAX: Final = 20
DEPTH_MAX: Final = 10  # causes of causes, groups in groups

_values = codec_for(None)


class Failure(msgspec.Struct, omit_defaults=True):
    """A recorded error.

    Attributes:
        type: `module.qualname` of its class.
        message: `str()` of it, cut at 8 KiB.
        args: its arguments in the form of `values`; None if one of them cannot be stored.
        attributes: those of its attributes that can be stored.
        notes: what `add_note` added.
        cause: `__cause__`.
        context: `__context__`, if Python would show it.
        suppress_context: `__suppress_context__`.
        members: the errors of an exception group.
        group: the message of an exception group, without the count that `str()` adds.
        traceback: as text, cut at 8 KiB; never run.
    """

    type: str
    message: str
    args: list[msgspec.Raw] | None = None
    attributes: dict[str, msgspec.Raw] = {}
    notes: list[str] = []
    cause: Failure | None = None
    context: Failure | None = None
    suppress_context: bool = False
    members: list[Failure] = []
    group: str | None = None
    traceback: str = ""


def from_exception(error: BaseException) -> Failure:
    """The record of an error. Never raises, whatever the error's own methods do."""
    recorder = _Recorder()
    try:
        return recorder.record(error, 0)
    except Exception as e:  # noqa: BLE001  # failing to record must not hide the error itself
        reason = f"the error could not be recorded in full: {type(e).__name__}"
        return Failure(raised.type_of(error), _clean(raised.message_of(error)), notes=[reason])


def rebuild(
    failure: Failure, known: Mapping[str, type[BaseException]] | None = None
) -> BaseException:
    """The error that a record stands for, with its causes, notes and members.

    Args:
        failure: the record.
        known: more classes by `module.qualname`; otherwise only imported modules are searched.

    Returns:
        An error of the same class, or a StepFailed if that class is not imported, is local to a
        function, or cannot say the same message from what was stored.
    """
    try:
        error = _same_class(failure, known)
    except Exception:  # noqa: BLE001  # damaged data, or a class that has changed since
        error = None
    if error is None:
        error = StepFailed(
            f"{failure.type}: {failure.message}",
            type_name=failure.type,
            traceback_text=failure.traceback,
        )
    raised.put_notes(error, failure.notes)
    if failure.cause is not None:
        raised.put(error, "__cause__", rebuild(failure.cause, known))
    if failure.context is not None:
        raised.put(error, "__context__", rebuild(failure.context, known))
    raised.put(error, "__suppress_context__", failure.suppress_context)
    return error


# -- recording -----------------------------------------------------------------------------------


class _Recorder:
    """Records one error and those it leads to, within one budget of bytes."""

    def __init__(self) -> None:
        self.left = TOTAL_BYTES_MAX
        self.seen: set[int] = set()

    def record(self, error: BaseException, depth: int) -> Failure:
        self.seen.add(id(error))
        failure = Failure(
            raised.type_of(error),
            self.text(raised.message_of(error), MESSAGE_BYTES_MAX),
            suppress_context=error.__suppress_context__,
        )
        group = error if isinstance(error, BaseExceptionGroup) else None
        if group is None:
            failure.args = self.arguments(error.args)
        else:
            failure.group = self.text(group.message, MESSAGE_BYTES_MAX)
        failure.attributes = self.attributes(raised.attributes_of(error))
        failure.notes = self.notes(error)
        failure.traceback = self.text(_traceback(error), TRACEBACK_BYTES_MAX, keep_end=True)
        if group is not None:
            self.members(failure, group.exceptions, depth)
        failure.cause = self.linked(error.__cause__, depth)
        if error.__cause__ is None and not error.__suppress_context__:
            failure.context = self.linked(error.__context__, depth)
        return failure

    def linked(self, error: BaseException | None, depth: int) -> Failure | None:
        if error is None or id(error) in self.seen or depth >= DEPTH_MAX or self.left <= 0:
            return None
        return self.record(error, depth + 1)

    def members(self, failure: Failure, errors: Iterable[BaseException], depth: int) -> None:
        left_out = 0
        for error in errors:
            # A group needs at least one member.
            if failure.members and (self.left <= 0 or depth >= DEPTH_MAX):
                left_out += 1
            elif depth >= DEPTH_MAX:
                failure.members.append(Failure(raised.type_of(error), "nested too deep"))
            else:
                failure.members.append(self.record(error, depth + 1))
        if left_out:
            failure.notes = [*failure.notes, f"{left_out} more errors were not recorded"]

    def text(self, text: str, limit: int, *, keep_end: bool = False) -> str:
        cut = _cut(text, max(0, min(limit, self.left)), keep_end=keep_end)
        self.left -= len(cut.encode())
        return cut

    def value(self, value: object) -> msgspec.Raw | None:
        try:
            data = _values.encode(value)
        except Unencodable:
            return None
        if len(data) > min(VALUE_BYTES_MAX, self.left):
            return None
        self.left -= len(data)
        return msgspec.Raw(data)

    def arguments(self, args: tuple[object, ...]) -> list[msgspec.Raw] | None:
        encoded: list[msgspec.Raw] = []
        for arg in args:
            data = self.value(arg)
            if data is None:
                return None
            encoded.append(data)
        return encoded

    def attributes(self, found: Mapping[str, object]) -> dict[str, msgspec.Raw]:
        encoded: dict[str, msgspec.Raw] = {}
        for name, value in found.items():
            data = self.value(value) if type(name) is str else None
            if data is not None:
                encoded[_clean(name)] = data
        return encoded

    def notes(self, error: BaseException) -> list[str]:
        notes = raised.notes_of(error)
        if len(notes) > NOTES_MAX:
            notes[NOTES_MAX:] = [f"{len(notes) - NOTES_MAX} more notes were not recorded"]
        return [self.text(note, MESSAGE_BYTES_MAX) for note in notes]


def _traceback(error: BaseException) -> str:
    """Of this error alone: causes and members have their own."""
    try:
        frames = traceback.format_list(traceback.extract_tb(error.__traceback__, -FRAMES_MAX))
        said = traceback.format_exception_only(error)
    except Exception as e:  # noqa: BLE001  # source lines and __str__ are the user's
        return f"(the traceback could not be formatted: {type(e).__name__})"
    return "".join(["Traceback (most recent call last):\n", *frames, *said]) if frames else ""


def _clean(text: str) -> str:
    """Text that UTF-8 can hold."""
    return text.encode(errors="backslashreplace").decode()


def _cut(text: str, limit: int, *, keep_end: bool) -> str:
    data = text.encode(errors="backslashreplace")
    if len(data) <= limit:
        return data.decode()
    kept = data[-limit:] if keep_end and limit else data[:limit]
    text = kept.decode(errors="ignore")
    return f"[...]{text}" if keep_end else f"{text}[...]"


# -- rebuilding ----------------------------------------------------------------------------------


def _same_class(
    failure: Failure, known: Mapping[str, type[BaseException]] | None
) -> BaseException | None:
    cls = raised.find_class(failure.type, known)
    if cls is None:
        return None
    attributes = {name: _decoded(raw) for name, raw in failure.attributes.items()}
    if issubclass(cls, BaseExceptionGroup):
        members = [rebuild(member, known) for member in failure.members]
        return raised.make(cls, (failure.group, members), attributes)
    if failure.args is None:  # one could not be stored: what it said may still be enough
        args: tuple[object, ...] = (failure.message,)
    else:
        args = tuple(_decoded(raw) for raw in failure.args)
    error = raised.make(cls, args, attributes)
    if failure.args is not None and raised.says_its_arguments(cls):
        return error  # whatever order the elements of a set come in now
    return error if _clean(raised.message_of(error)) == failure.message else None


def _decoded(raw: msgspec.Raw) -> object:
    return _values.decode(bytes(raw))
