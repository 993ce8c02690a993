"""Whether and when a failed attempt is followed by another."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any

import msgspec
import pytest

from durable.errors import (
    DurableError,
    Fatal,
    InvalidArguments,
    NotInWorkflow,
    RunCancelled,
    StoreUnavailable,
    UnencodableResult,
    UsageError,
)
from durable.protocol.retries import GiveUp, Retry, RetryIn, decide


class Declined(Fatal):
    """A user's fatal error."""


class Unknown(AttributeError):
    """A user's error derived from one that is never retried."""


@pytest.mark.parametrize(
    "error",
    [ValueError(), OSError(), KeyError(), Exception(), DurableError("x"), StoreUnavailable("x"),
     TimeoutError(), RuntimeError(), RecursionError(), ExceptionGroup("g", [ValueError()])],
    ids=repr,
)  # fmt: skip
def test_retried(error: Exception) -> None:
    """Errors that may pass are retried until the attempts are used up."""
    assert isinstance(decide(Retry(), 1, error, uniform=0.5), RetryIn)
    assert isinstance(decide(Retry(), 2, error, uniform=0.5), RetryIn)
    assert decide(Retry(), 3, error, uniform=0.5) == GiveUp("attempt 3 of 3 failed")


@pytest.mark.parametrize(
    "error",
    [TypeError(), AttributeError(), NameError(), UnboundLocalError(), ImportError(),
     ModuleNotFoundError(), SyntaxError(), IndentationError(), NotImplementedError(),
     AssertionError(), Fatal("x"), Declined("x"), Unknown(), UnencodableResult("x"),
     InvalidArguments("x"), NotInWorkflow("x"), KeyboardInterrupt(), SystemExit(),
     asyncio.CancelledError(), RunCancelled(), GeneratorExit(),
     ExceptionGroup("g", [ValueError(), ExceptionGroup("h", [TypeError()])]),
     BaseExceptionGroup("g", [ValueError(), KeyboardInterrupt()])],
    ids=repr,
)  # fmt: skip
def test_never_retried(error: BaseException) -> None:
    """Errors that show a fault in the code, and those that are not errors, end the call at once."""
    assert isinstance(decide(Retry(attempts=100), 1, error, uniform=0.5), GiveUp)


@pytest.mark.parametrize(
    ("attempt", "longest"),
    [(1, 1.0), (2, 2.0), (3, 4.0), (6, 32.0), (7, 60.0), (8, 60.0), (5000, 60.0)],
)
def test_waits(attempt: int, longest: float) -> None:
    """The longest wait doubles up to the cap; the wait is drawn evenly below it."""
    policy = Retry(attempts=10_000)

    for uniform in (0.0, 0.25, 1.0):
        decision = decide(policy, attempt, ValueError(), uniform=uniform)
        assert decision == RetryIn(longest * uniform)


def test_one_attempt() -> None:
    """One attempt means no retry."""
    assert decide(Retry(attempts=1), 1, ValueError(), uniform=0) == GiveUp("attempt 1 of 1 failed")


def test_retry_on() -> None:
    """Only what is listed is retried, also what by default is not; `Fatal` stays fatal."""
    policy = Retry(retry_on=(OSError, TypeError, Fatal))

    assert isinstance(decide(policy, 1, ConnectionError(), uniform=0), RetryIn)
    assert isinstance(decide(policy, 1, TypeError(), uniform=0), RetryIn)
    assert isinstance(decide(policy, 1, ValueError(), uniform=0), GiveUp)
    assert isinstance(decide(policy, 1, Declined("x"), uniform=0), GiveUp)


def test_stop_on() -> None:
    """What is listed is not retried, subclasses and members of groups included."""
    policy = Retry(stop_on=(OSError,))

    assert decide(policy, 1, ConnectionError(), uniform=0) == GiveUp(
        "ConnectionError is not retried"
    )
    group = ExceptionGroup("g", [ValueError(), OSError()])
    assert isinstance(decide(policy, 1, group, uniform=0), GiveUp)
    assert isinstance(decide(policy, 1, ValueError(), uniform=0), RetryIn)


@pytest.mark.parametrize(
    "options",
    [{"attempts": 0}, {"attempts": 2.5}, {"attempts": True}, {"first": -1}, {"factor": 0.5},
     {"max": float("nan")}, {"max": float("inf")}, {"first": "soon"}, {"max_elapsed": -1},
     {"retry_if": "always"}, {"attempts": "3"}, {"factor": True}, {"factor": "2"},
     {"factor": float("nan")}, {"first": None}, {"first": ""}, {"max": None},
     {"max_elapsed": ""}, {"max_elapsed": float("nan")}, {"jitter": 0.5},
     {"retry_on": OSError}, {"retry_on": [OSError]}, {"retry_on": ("OSError",)},
     {"retry_on": (OSError(),)}, {"stop_on": OSError}, {"stop_on": None},
     {"first": "5m"}, {"first": 2, "max": 1}],
    ids=repr,
)  # fmt: skip
def test_bad_policy(options: dict[str, Any]) -> None:
    """A policy with a value out of range is refused when it is made, naming the option."""
    with pytest.raises(UsageError, match=next(iter(options))):
        Retry(**options)


def test_an_async_predicate_is_refused() -> None:
    """What it returns would always count as a yes."""

    async def passes(error: Exception) -> bool:
        return False

    with pytest.raises(UsageError, match="retry_if must not be async"):
        Retry(retry_if=passes)  # type: ignore[arg-type]  # wrong on purpose


def test_durations_as_people_write_them() -> None:
    """Waits may be text or timedeltas."""
    policy = Retry(first="500ms", max=dt.timedelta(minutes=1), attempts=100)

    assert decide(policy, 1, ValueError(), uniform=1) == RetryIn(0.5)
    assert decide(policy, 50, ValueError(), uniform=1) == RetryIn(60)


def test_without_jitter() -> None:
    """`jitter=False` waits the longest wait each time."""
    assert decide(Retry(jitter=False), 2, ValueError(), uniform=0.1) == RetryIn(2.0)


def test_retry_if() -> None:
    """The predicate is asked about what would be retried; if it raises, the error is final."""
    asked: list[Exception] = []

    def says(answer: bool) -> Any:
        return lambda e: (asked.append(e), answer)[1]

    assert isinstance(decide(Retry(retry_if=says(True)), 1, ValueError(), uniform=0), RetryIn)
    assert isinstance(decide(Retry(retry_if=says(False)), 1, ValueError(), uniform=0), GiveUp)
    assert isinstance(decide(Retry(retry_if=says(True)), 1, TypeError(), uniform=0), GiveUp)
    assert [type(e) for e in asked] == [ValueError, ValueError]
    broken = decide(Retry(retry_if=lambda e: 1 / 0 > 0), 1, ValueError(), uniform=0)
    assert broken == GiveUp("retry_if raised ZeroDivisionError: division by zero", surprising=True)


def test_max_elapsed() -> None:
    """No attempt begins later than `max_elapsed` after the first began."""
    policy = Retry(first=10, attempts=100, max_elapsed="30s")

    assert decide(policy, 1, ValueError(), uniform=1, elapsed=20) == RetryIn(10)
    assert isinstance(decide(policy, 1, ValueError(), uniform=1, elapsed=20.1), GiveUp)
    assert decide(policy, 1, ValueError(), uniform=0, elapsed=30) == RetryIn(0)


def test_policy_is_fixed() -> None:
    """A policy is a value: it cannot be changed, and equal ones are equal."""
    assert Retry() == Retry(attempts=3, first=1.0, factor=2.0, max=60.0)
    with pytest.raises(AttributeError):
        Retry().attempts = 5  # type: ignore[misc]  # wrong on purpose
    assert msgspec.structs.replace(Retry(), attempts=5).attempts == 5
