"""What a run of each workflow must have recorded, said once more and without durable.

The checker compares this with what the store holds and with what the bodies wrote down.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

ATTEMPTS = 3  # of a step that fails with an error that is retried


@dataclass(frozen=True)
class Expected:
    """The outcome of one run.

    Attributes:
        values: slots that must hold a value, with the failed attempts before it.
        errors: slots that must hold an error, with the failed attempts recorded before it.
        optional: slots that may hold a value, or nothing: a decision closed their branch.
        either: pairs of optional slots of which one is received, and not the other.
        order: the slots in the order in which they must be received; None if chance decides it.
        in_record_order: each outcome is received as soon as it is handed over.
        fails: the slot whose error is the run's; None if it completes.
    """

    values: dict[str, int]
    errors: dict[str, int] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()
    either: tuple[tuple[str, str], ...] = ()
    order: tuple[str, ...] | None = None
    in_record_order: bool = False
    fails: str | None = None


def expected(workflow: str, width: int) -> Expected:
    """What a run of this workflow with this input must come to."""
    return EXPECTED[workflow](width)


def _in_sequence(slots: list[tuple[str, int | None]], fails: str | None = None) -> Expected:
    """Slots with their failed attempts; None stands for a fatal error at the first."""
    hopeless = {slot: ATTEMPTS - 1 for slot, _ in slots if slot.startswith(("hopeless-", "end"))}
    errors = {slot: 0 for slot, failed in slots if failed is None} | hopeless
    values = {slot: failed or 0 for slot, failed in slots if slot not in errors}
    order = tuple(slot for slot, _ in slots)
    return Expected(values, errors, order=order, in_record_order=True, fails=fails)


def _sequence(width: int) -> Expected:
    pairs: list[tuple[str, int | None]] = []
    for i in range(width):
        pairs += [(f"plain-{i}", 0), (f"flaky-{i}", i % 3)]
    return _in_sequence([*pairs, ("last", 0)])


def _caught(width: int) -> Expected:
    slots: list[tuple[str, int | None]] = []
    for i in range(width):
        slots += [(f"hopeless-{i}", 2), (f"fatal-{i}", None), (f"instead-{i}", 0)]
    return _in_sequence(slots)


def _doomed(width: int) -> Expected:
    return _in_sequence([*((f"before-{i}", 0) for i in range(width)), ("end", 2)], fails="end")


def _side_by_side(width: int) -> Expected:
    values = {f"branch-{i}-a": 0 for i in range(width)}
    values |= {f"branch-{i}-b": i % 2 for i in range(width)}
    return Expected(values | {"one": 0, "two": 0, "three": 0})


def _mapped(width: int) -> Expected:
    values = {f"item-{i}-{part}": 0 for i in range(2 * width) for part in "ab"}
    return Expected(values | {"last": 0}, in_record_order=True)


def _plain_asyncio(width: int) -> Expected:
    together = [f"together-{i}" for i in range(width)]
    values = dict.fromkeys(together, 0) | {"rough": 1, "after": 0, "beside": 0}
    return Expected(values, order=(*together, "rough", "after", "beside"))


def _as_they_come(width: int) -> Expected:
    values = {f"racer-{i}": 0 for i in range(2 * width)}
    return Expected(values | {"walker": 0, "last": 0}, in_record_order=True)


def _in_a_thread(width: int) -> Expected:
    slots: list[tuple[str, int | None]] = []
    for i in range(width):
        slots += [(f"toil-{i}", 0), (f"fatal-{i}", None)]
    return _in_sequence([*slots, ("large", 0)])


def _large(width: int) -> Expected:
    order = tuple(f"{kind}-{i}" for kind in ("large", "wide") for i in range(width))
    return Expected(dict.fromkeys(order, 0), order=order)


def _nested(width: int) -> Expected:
    first, left, right = (
        [f"{part}-{i}" for i in range(width)] for part in ("first", "left", "right")
    )
    order = (*first, "between", *left, *right)
    return Expected(dict.fromkeys(order, 0), order=order)


def _decided(width: int) -> Expected:
    closed = frozenset(f"closed-{i}-{j}" for i in range(width) for j in range(3))
    return Expected({"fuse": 0, "after": 0}, {"spark": 0}, optional=closed)


def _impatient(width: int) -> Expected:
    either = tuple((f"slow-{i}", f"instead-{i}") for i in range(width))
    optional = frozenset(slot for pair in either for slot in pair)
    return Expected({"last": 0}, optional=optional, either=either)


EXPECTED: dict[str, Callable[[int], Expected]] = {
    "sequence": _sequence,
    "caught": _caught,
    "doomed": _doomed,
    "side_by_side": _side_by_side,
    "mapped": _mapped,
    "plain_asyncio": _plain_asyncio,
    "as_they_come": _as_they_come,
    "in_a_thread": _in_a_thread,
    "large": _large,
    "nested": _nested,
    "decided": _decided,
    "impatient": _impatient,
}
