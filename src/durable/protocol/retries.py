"""Whether a failed attempt is followed by another, and when. Decided here, done elsewhere.

Errors that show a fault in the code are not retried: another attempt would fail alike. The wait
before attempt n + 1 is drawn evenly between 0 and `first * factor ** (n - 1)`, capped at `max`
("full jitter": callers that failed together do not return together).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import msgspec

from durable.errors import Fatal, UnencodableResult, UsageError

NEVER_RETRIED: Final[tuple[type[Exception], ...]] = (
    AssertionError,
    AttributeError,
    ImportError,
    NameError,
    NotImplementedError,
    SyntaxError,
    TypeError,
    Fatal,
    UnencodableResult,
    UsageError,
)


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """How often and how soon a failing call is tried again.

    Attributes:
        attempts: in all, the first included; 1 means no retry.
        first: longest wait before the second attempt, in seconds.
        factor: by which the longest wait grows with each attempt.
        max: beyond which it does not grow, in seconds.
        retry_on: if given, only these errors are retried, and of those all but `Fatal`.
        stop_on: these errors are not retried.

    Raises:
        UsageError: a value is out of range.
    """

    attempts: int = 3
    first: float = 1.0
    factor: float = 2.0
    max: float = 60.0
    retry_on: tuple[type[Exception], ...] = ()
    stop_on: tuple[type[Exception], ...] = ()

    def __post_init__(self) -> None:
        attempts: object = self.attempts  # callers may not be type-checked
        if not isinstance(attempts, int) or isinstance(attempts, bool) or attempts < 1:
            raise UsageError(f"attempts must be a whole number from 1 on, not {attempts!r}")
        for name, least in (("first", 0), ("factor", 1), ("max", 0)):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and math.isfinite(value) and value >= least):
                raise UsageError(f"{name} must be a number from {least} on, not {value!r}")


class RetryIn(msgspec.Struct, frozen=True):
    """Try again after `seconds`."""

    seconds: float


class GiveUp(msgspec.Struct, frozen=True):
    """Record the error; `reason` says why it is not tried again."""

    reason: str


def decide(
    policy: Retry, attempt: int, error: BaseException, *, uniform: float
) -> RetryIn | GiveUp:
    """What follows the failure of an attempt.

    Args:
        policy: of the step.
        attempt: the number of the attempt that failed, from 1.
        error: what it raised. A group is retried if each of its errors would be.
        uniform: a random number from 0 to 1.
    """
    if isinstance(error, policy.stop_on):
        return GiveUp(f"{type(error).__name__} is not retried")
    for leaf in _leaves(error):
        if not _retried(policy, leaf):
            return GiveUp(f"{type(leaf).__name__} is not retried")
    if attempt >= policy.attempts:
        return GiveUp(f"attempt {attempt} of {policy.attempts} failed")
    return RetryIn(uniform * longest_wait(policy, attempt))


def longest_wait(policy: Retry, attempt: int) -> float:
    """The longest wait after the failure of this attempt, in seconds."""
    try:
        return min(policy.max, policy.first * policy.factor ** (attempt - 1))
    except OverflowError:
        return policy.max


def _retried(policy: Retry, error: BaseException) -> bool:
    if not isinstance(error, Exception) or isinstance(error, (Fatal, *policy.stop_on)):
        return False
    if policy.retry_on:
        return isinstance(error, policy.retry_on)
    return not isinstance(error, NEVER_RETRIED)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from _leaves(member)
    else:
        yield error
