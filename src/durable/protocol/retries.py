"""Whether a failed attempt is followed by another, and when. Decided here, done elsewhere.

Errors that show a fault in the code are not retried: another attempt would fail alike. The wait
before attempt n + 1 is drawn evenly between 0 and `first * factor ** (n - 1)`, capped at `max`
("full jitter": callers that failed together do not return together); without jitter it is that.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Final, TypeGuard

import msgspec

from durable.errors import Fatal, UnencodableResult, UsageError
from durable.protocol import durations

Duration = float | str | timedelta

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

    Durations are seconds, timedeltas or text such as "1h30m".

    Attributes:
        attempts: in all, the first included; 1 means no retry.
        first: longest wait before the second attempt; at most `max`.
        factor: by which the longest wait grows with each attempt.
        max: beyond which it does not grow.
        jitter: draw each wait evenly between 0 and the longest; False waits the longest.
        retry_on: if given, only these errors are retried, and of those all but `Fatal`.
        stop_on: these errors are not retried.
        retry_if: asked last, about errors that would be retried; False records the error. If it
            raises, that is a no, and the recorded error has a note that says so.
        max_elapsed: no attempt begins later than this after the first one began; whatever
            processes died meanwhile.

    Raises:
        UsageError: a value is out of range.
    """

    attempts: int = 3
    first: Duration = 1.0
    factor: float = 2.0
    max: Duration = 60.0
    jitter: bool = True
    retry_on: tuple[type[Exception], ...] = ()
    stop_on: tuple[type[Exception], ...] = ()
    retry_if: Callable[[Exception], bool] | None = None
    max_elapsed: Duration | None = None

    def __post_init__(self) -> None:  # callers may not be type-checked
        attempts: object = self.attempts
        if not isinstance(attempts, int) or isinstance(attempts, bool) or attempts < 1:
            raise UsageError(f"attempts must be a whole number from 1 on, not {attempts!r}")
        factor: object = self.factor
        if not _is_number(factor) or not (math.isfinite(factor) and factor >= 1):
            raise UsageError(f"factor must be a number from 1 on, not {factor!r}")
        if not isinstance(self.jitter, bool):
            raise UsageError(f"jitter is True or False, not {self.jitter!r}")
        self._check_waits()
        for name in ("retry_on", "stop_on"):
            _check_types(name, getattr(self, name))
        _check_predicate(self.retry_if)

    def _check_waits(self) -> None:
        first, longest = _length("first", self.first), _length("max", self.max)
        if self.max_elapsed is not None:
            _length("max_elapsed", self.max_elapsed)
        if first > longest:
            raise UsageError(
                f"first={self.first!r} is longer than max={self.max!r}, and no wait is",
                hint=f"give max as well: Retry(first={self.first!r}, max={self.first!r})",
            )


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _length(name: str, value: Duration) -> float:
    try:
        return durations.seconds(value)
    except UsageError as e:
        raise UsageError(f"{name} of Retry: {e.message}", hint=e.hint) from None


def _check_types(name: str, types: object) -> None:
    given = types if isinstance(types, tuple) else (None,)
    if not all(isinstance(one, type) and issubclass(one, BaseException) for one in given):
        raise UsageError(
            f"{name} must be a tuple of exception classes, not {types!r}",
            hint=f"write {name}=(ConnectionError,)",
        )


def _check_predicate(retry_if: object) -> None:
    if retry_if is None:
        return
    if not callable(retry_if):
        raise UsageError(f"retry_if must be a function of the error, not {retry_if!r}")
    if inspect.iscoroutinefunction(retry_if):
        raise UsageError(
            f"retry_if must not be async, and {retry_if!r} is",
            hint="it decides from the error alone; do in the step what has to be waited for",
        )


class RetryIn(msgspec.Struct, frozen=True):
    """Try again after `seconds`."""

    seconds: float


class GiveUp(msgspec.Struct, frozen=True):
    """Record the error; `reason` says why it is not tried again.

    Attributes:
        surprising: the policy itself broke, so people are told.
    """

    reason: str
    surprising: bool = False


def decide(
    policy: Retry, attempt: int, error: BaseException, *, uniform: float, elapsed: float = 0.0
) -> RetryIn | GiveUp:
    """What follows the failure of an attempt.

    Args:
        policy: of the step.
        attempt: the number of the attempt that failed, from 1.
        error: what it raised. A group is retried if each of its errors would be.
        uniform: a random number from 0 to 1.
        elapsed: seconds since the first attempt began.
    """
    if isinstance(error, policy.stop_on):
        return GiveUp(f"{type(error).__name__} is not retried")
    for leaf in _leaves(error):
        if not _retried(policy, leaf):
            return GiveUp(f"{type(leaf).__name__} is not retried")
    if attempt >= policy.attempts:
        return GiveUp(f"attempt {attempt} of {policy.attempts} failed")
    refused = _refused(policy, error)
    if refused is not None:
        return refused
    wait = longest_wait(policy, attempt) * (uniform if policy.jitter else 1.0)
    if policy.max_elapsed is not None and elapsed + wait > durations.seconds(policy.max_elapsed):
        return GiveUp(f"the next attempt would begin after max_elapsed={policy.max_elapsed}")
    return RetryIn(wait)


def longest_wait(policy: Retry, attempt: int) -> float:
    """The longest wait after the failure of this attempt, in seconds."""
    cap = durations.seconds(policy.max)
    try:
        return min(cap, durations.seconds(policy.first) * policy.factor ** (attempt - 1))
    except OverflowError:
        return cap


def _refused(policy: Retry, error: BaseException) -> GiveUp | None:
    if policy.retry_if is None or not isinstance(error, Exception):
        return None
    try:
        wanted = policy.retry_if(error)
    except Exception as e:  # noqa: BLE001  # it is the user's; the error to record is the step's
        return GiveUp(f"retry_if raised {type(e).__name__}: {e}", surprising=True)
    return None if wanted else GiveUp(f"retry_if said no to {type(error).__name__}")


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
