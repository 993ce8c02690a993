"""What is stored stays readable: the rules of docs/reference/objects.md, for every record.

A release may add a field with a default. It may not make one mandatory, take one away that is,
or refuse what a later release adds. REQUIRED is frozen: a change of it strands stored runs.
"""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

import msgspec
import pytest

from durable.protocol import failures, primitives, records, schedules

REQUIRED = {
    "records.LockRequest": "key on_conflict",
    "records.Parent": "run instance path",
    "records.Debounce": "key due latest",
    "records.Start": "workflow input instance nonce",
    "records.Origin": "instance created",
    "records.Fork": "instance epoch",
    "records.Slept": "n path",
    "records.Step": "path name outcome epoch n nonce time",
    "records.Group": "k epoch nonce time steps",
    "records.Wait": "path kind name epoch nonce time",
    "records.Take": "k path kind name outcome epoch n nonce time",
    "records.Event": "name key value nonce time",
    "records.Attempt": "path attempt failure due nonce time",
    "records.Begin": "path attempt nonce time epoch",
    "records.Beat": "path attempt epoch nonce time details",
    "records.Published": "name epoch nonce time value",
    "records.Undo": "path name input epoch n nonce time",
    "records.Epoch": "epoch worker label why nonce time",
    "records.Seen": "highest holes",
    "records.Cancel": "nonce time",
    "records.Holder": "run instance since",
    "records.Result": "status nonce epoch time",
    "records.Marker": "run instance workflow nonce",
    "records.Timer": "run instance workflow queue nonce path",
    "records.Lease": "worker ttl margin nonce",
    "records.Presence": "worker nonce",
    "records.Attention": "run instance workflow reason message nonce time",
    "records.History": "run instance workflow status started ended nonce",
    "records.LockRecord": "key run instance workflow since nonce",
    "records.Waiter": "key run instance since nonce",
    "records.QueueRecord": "name nonce",
    "records.Slot": "run instance workflow since nonce",
    "records.Pending": "run instance workflow nonce",
    "records.KeyClaim": "run request nonce",
    "records.Starts": "nonce",
    "records.Pauses": "nonce",
    "records.ScheduleRecord": "name workflow input schedule nonce",
    "primitives.ValueRecord": "key value nonce",
    "primitives.EffectBegun": "key attempt nonce time",
    "primitives.EffectEnded": "key attempt nonce time",
    "primitives.LeaseRecord": "key epoch nonce",
    "failures.Failure": "type message",
    "schedules.Cron": "expression",
    "schedules.Every": "seconds",
    "schedules.Schedule": "when",
}  # fmt: skip


def kinds(module: ModuleType) -> dict[str, type[msgspec.Struct]]:
    """The records that a module defines, by name."""
    short = module.__name__.rsplit(".", 1)[-1]
    return {
        f"{short}.{name}": kind
        for name, kind in vars(module).items()
        if inspect.isclass(kind)
        and issubclass(kind, msgspec.Struct)
        and f"{kind.__module__}.".startswith(f"{module.__name__}.")
    }


KINDS = {
    name: kind
    for module in (records, primitives, failures, schedules)
    for name, kind in kinds(module).items()
}


def required(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The fields that have no default, with their types."""
    return {field.name: field.type for field in msgspec.structs.fields(kind) if field.required}


def least(kind: type[msgspec.Struct]) -> Any:
    """The record with what it must have and nothing else, as the oldest release wrote it."""
    given = {name: example(field) for name, field in required(kind).items()}
    whole = msgspec.json.decode(msgspec.json.encode(kind(**given)))
    if isinstance(whole, list):
        return whole[: len(given)]
    return {key: value for key, value in whole.items() if key in given}


def example(annotation: Any) -> Any:
    """Some value of that type."""
    info = msgspec.inspect.type_info(annotation)
    match info:
        case msgspec.inspect.UnionType(types=types) if any(
            isinstance(one, msgspec.inspect.NoneType) for one in types
        ):
            return None
        case msgspec.inspect.UnionType(types=types):
            return example_of(types[0])
        case _:
            return example_of(info)


def example_of(info: msgspec.inspect.Type) -> Any:
    match info:
        case msgspec.inspect.StrType():
            return "text"
        case msgspec.inspect.IntType():
            return 3
        case msgspec.inspect.FloatType():
            return 1.5
        case msgspec.inspect.LiteralType(values=values):
            return values[0]
        case msgspec.inspect.ListType():
            return []
        case msgspec.inspect.RawType():
            return msgspec.Raw(b"1")
        case msgspec.inspect.StructType(cls=cls):
            return msgspec.json.decode(msgspec.json.encode(least(cls)), type=cls)
        case _:
            raise AssertionError(f"no example of {info}")


def test_every_record_is_known_here() -> None:
    """A new kind of record is added to the list with what it must have."""
    assert set(KINDS) == set(REQUIRED)


@pytest.mark.parametrize("name", REQUIRED)
def test_only_these_fields_are_mandatory(name: str) -> None:
    """All others have a default, so that records without them decode for ever."""
    assert " ".join(required(KINDS[name])) == REQUIRED[name]


@pytest.mark.parametrize("name", REQUIRED)
def test_the_least_and_the_most_decode(name: str) -> None:
    """A record of the oldest release, and one with fields of a later one, read alike."""
    kind = KINDS[name]
    old = least(kind)
    new = [*old, "later"] if isinstance(old, list) else {**old, "added_later": {"deep": [1]}}

    read = [msgspec.json.decode(msgspec.json.encode(one), type=kind) for one in (old, new)]

    assert read[0] == read[1]


def test_what_is_optional_has_its_meaning_as_default() -> None:
    """A run that an older release started is not pinned, limited, or owned by anybody."""
    start = msgspec.json.decode(msgspec.json.encode(least(records.Start)), type=records.Start)

    assert (start.pin, start.limited, start.parent, start.tombstone) == ("", False, None, False)
