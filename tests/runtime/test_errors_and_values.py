"""What the workflow receives is the recorded copy: the same live, on replay and as a result."""

from __future__ import annotations

from typing import Any

import anyio
import msgspec
import pytest

import durable
from durable.errors import Fatal, StepFailed, UnencodableResult
from durable.protocol import failures, values
from durable.protocol.failures import from_exception
from durable.protocol.records import Attempt
from durable.protocol.retries import Retry
from durable.runtime.closing import Attention, Closing, Finished, Stopped
from tests.protocol.kinds import KINDS, Kind, same
from tests.runtime.clocks import BACKENDS, run
from tests.runtime.runs import Run, a_step, a_workflow, error_of, recorded, value_of

backends = pytest.mark.parametrize("backend", BACKENDS)


@a_step
async def s(x: int) -> int:
    return x * 10


def executed(backend: str, one: Run, **options: Any) -> Closing | None:
    async def main() -> Closing | None:
        return await one.execute(**options)

    return run(backend, main)


# -- values --------------------------------------------------------------------------------------


CASES = [pytest.param(kind, True, id=f"{kind.id}-annotated") for kind in KINDS] + [
    pytest.param(kind, False, id=f"{kind.id}-bare") for kind in KINDS if not kind.annotated
]


@pytest.mark.parametrize(("kind", "annotated"), CASES)
def test_kinds(kind: Kind, annotated: bool) -> None:
    """Each kind of value is exact in value and type: live, on replay, and as the run's result."""
    received: list[object] = []

    async def give() -> Any:
        return kind.value

    async def w() -> Any:
        received.append(await step())
        return received[-1]

    if annotated:
        for fn in (give, w):
            fn.__annotations__["return"] = kind.annotation
    else:
        for fn in (give, w):
            fn.__annotations__.clear()
    one = Run(a_workflow(w))
    step = a_step(give)

    closings = [executed("asyncio", one), executed("asyncio", one)]

    assert one.begun == []
    for value in [*received, *(result(one, closing) for closing in closings)]:
        assert same(value, kind.value)
    assert all(value is not kind.value for value in received if type(value) in (list, dict, set))


def result(one: Run, closing: Closing | None) -> object:
    assert isinstance(closing, Finished)
    assert isinstance(closing.value, msgspec.Raw), closing.failure
    return values.decode(closing.value, one.workflow.definition.returns)


@backends
def test_the_copy(backend: str) -> None:
    """Live, too, the workflow gets the decoded copy and not the object of the body."""
    original = [1, [2]]

    @a_step
    async def give() -> list[Any]:
        return original

    async def w() -> list[Any]:
        got: list[Any] = await give()
        got[1].append(3)
        return got

    assert value_of(executed(backend, Run(a_workflow(w)))) == [1, [2, 3]]
    assert original == [1, [2]]


class Opaque:
    """Nothing that can be stored without an annotation."""


@backends
def test_unencodable_result(backend: str) -> None:
    """A result that cannot be stored is a recorded error, and its body runs once."""

    @a_step
    async def give():  # type: ignore[no-untyped-def]  # without annotations on purpose
        return Opaque()

    async def w() -> None:
        await give()

    one = Run(a_workflow(w))

    for begun in (["give.1"], []):
        assert isinstance(error_of(executed(backend, one)), UnencodableResult)
        assert one.begun == begun
    assert one.attempts() == []


@backends
def test_undecodable_value(backend: str) -> None:
    """A recorded value that no longer fits the annotation needs attention; nothing sees it."""
    seen: list[object] = []

    async def w() -> None:
        seen.append(await s(1))

    one = Run(a_workflow(w))
    one.put_step(recorded("s.1", 1, "text"))

    closing = executed(backend, one)

    assert isinstance(closing, Attention)
    assert (closing.reason, closing.path) == ("undecodable", "s.1")
    assert seen == one.begun == []


# -- errors --------------------------------------------------------------------------------------


class Declined(Exception):
    """A user's error with arguments and an attribute."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code


class Urgent(BaseException):
    """No `Exception`, with two arguments of its own."""

    def __init__(self, floor: int, what: str) -> None:
        super().__init__(floor, what)


def raisers() -> dict[str, BaseException]:
    local = type("Local", (Exception,), {})
    caused = ValueError("outer")
    caused.__cause__ = KeyError("inner")
    noted = Declined(3, "card")
    noted.add_note("seen by the bank")
    return {
        "builtin": ValueError("x", 1),
        "own": Declined(7, "limit"),
        "noted": noted,
        "caused": caused,
        "group": ExceptionGroup("both", [ValueError("a"), Declined(1, "b")]),
        "local": local("cannot be imported"),
        "fatal": Fatal("stop"),
        "base": Urgent(7, "now"),
        "exit": SystemExit(3),
    }


@backends
@pytest.mark.parametrize("kind", raisers())
def test_errors(backend: str, kind: str) -> None:
    """An error is rebuilt from its record live and on replay alike, so one handler catches both."""
    caught: list[BaseException] = []

    @a_step(attempts=1)
    async def fail() -> None:
        raise raisers()[kind]

    async def w() -> None:
        try:
            await fail()
        except BaseException as e:
            caught.append(e)
            raise

    one = Run(a_workflow(w))

    final = [error_of(executed(backend, one)), error_of(executed(backend, one))]

    expected = failures.rebuild(from_exception(raisers()[kind]))
    assert one.begun == []
    for error in [*caught, *final]:
        assert told(error) == told(expected)
    # What cannot be imported, or would end the process, is stood for by another.
    assert isinstance(caught[0], StepFailed) == (kind in {"local", "exit"})


def told(error: BaseException) -> object:
    members = [told(e) for e in error.exceptions] if isinstance(error, BaseExceptionGroup) else []
    cause = told(error.__cause__) if error.__cause__ else None
    return (
        type(error), str(error), error.args[:1], getattr(error, "__notes__", []), cause,
        getattr(error, "code", None), members,
    )  # fmt: skip


# -- retries -------------------------------------------------------------------------------------


@a_step(retry=Retry(attempts=3, first=3, factor=2))
async def flaky(fails: int) -> int:
    if durable.current().attempt <= fails:
        raise ValueError(f"attempt {durable.current().attempt}")
    return durable.current().attempt


@backends
def test_retries(backend: str) -> None:
    """Each failed attempt is recorded; waits grow; the outcome says which attempt it was."""

    async def w() -> list[Any]:
        began = anyio.current_time()
        return [await flaky(2), anyio.current_time() - began]

    one = Run(a_workflow(w))

    assert value_of(executed(backend, one)) == [3, pytest.approx(9, abs=1)]
    assert [(a.attempt, a.failure.message) for a in one.attempts()] == [
        (1, "attempt 1"),
        (2, "attempt 2"),
    ]
    assert one.steps()["flaky.1"].attempt == 3


@backends
def test_attempts_run_out(backend: str) -> None:
    """The last attempt's error is the outcome."""

    async def w() -> int:
        return int(await flaky(9))

    one = Run(a_workflow(w))

    assert str(error_of(executed(backend, one))) == "attempt 3"
    assert len(one.attempts()) == 2
    assert one.steps()["flaky.1"].outcome == "error"


@backends
def test_attempts_survive_their_owner(backend: str) -> None:
    """The next owner goes on with the count, after what is left of the wait."""
    seen: list[float] = []

    async def w() -> int:
        began = anyio.current_time()
        try:
            return int(await flaky(1))
        finally:
            seen.append(anyio.current_time() - began)

    one = Run(a_workflow(w))
    one.put_step(recorded("other.1", 1))  # the run has been owned before

    async def main() -> int:
        now = one.bucket.now()
        failure = from_exception(ValueError("attempt 1"))
        one.put_attempt(Attempt("flaky.1", 1, failure, now + 4, "a1", now, 1))
        return int(value_of(await one.execute()))

    assert run(backend, main) == 2
    assert seen == [pytest.approx(4, abs=1)]


@backends
@pytest.mark.parametrize("error", [TypeError, AssertionError, NameError, Fatal, KeyError])
def test_errors_that_are_not_retried(backend: str, error: type[Exception]) -> None:
    """Errors of the code and Fatal end the call at once; others are tried again."""

    @a_step(retry=Retry(first=0))
    async def fail() -> None:
        raise error("x")

    async def w() -> None:
        await fail()

    one = Run(a_workflow(w))

    assert isinstance(error_of(executed(backend, one)), error)
    assert len(one.begun) == (3 if error is KeyError else 1)


@backends
def test_attempts_option(backend: str) -> None:
    """`options(attempts=)` changes one call."""

    async def w() -> None:
        await flaky.options(attempts=1)(9)

    one = Run(a_workflow(w))

    assert str(error_of(executed(backend, one))) == "attempt 1"
    assert one.attempts() == []


# -- drift ---------------------------------------------------------------------------------------


def drifted(backend: str, before: Any, after: Any) -> Closing | None:
    one = Run(a_workflow(before))
    value_of(executed(backend, one))
    return executed(backend, one, definition=a_workflow(after))


@backends
def test_drift_by_arguments(backend: str) -> None:
    """Other arguments than recorded need attention; the message names run, path and both."""
    seen: list[object] = []

    async def before() -> int:
        return int(await s(1))

    async def after() -> None:
        seen.append(await s(2))

    closing = drifted(backend, before, after)

    assert isinstance(closing, Attention)
    assert (closing.reason, closing.path) == ("drift", "s.1")
    assert "'run'" in closing.message
    assert "'s.1'" in closing.message
    assert closing.hint
    assert closing.recorded != closing.asked
    assert seen == []


@backends
def test_drift_by_name(backend: str) -> None:
    """A path recorded for another step needs attention."""

    async def w() -> int:
        return int(await s(1))

    one = Run(a_workflow(w))
    one.put_step(msgspec.structs.replace(recorded("s.1", 1, 10), name="t"))

    closing = executed(backend, one)

    assert isinstance(closing, Attention)
    assert (closing.recorded.split()[0], closing.asked.split()[0]) == ("t", "s")


@backends
def test_unchecked_arguments(backend: str) -> None:
    """`check_args=False` opts out."""

    @a_step(check_args=False)
    async def unchecked(x: int) -> int:
        return x

    async def before() -> int:
        return int(await unchecked(1))

    async def after() -> int:
        return int(await unchecked(2))

    assert value_of(drifted(backend, before, after)) == 1


@backends
def test_call_that_is_new_in_the_code(backend: str) -> None:
    """A call of another name, added or removed, disturbs no run in flight."""

    @a_step
    async def added(x: int) -> int:
        return x

    async def without() -> list[int]:
        return [await s(1), await s(2)]

    async def with_it() -> list[int]:
        return [await s(1), await added(5), await s(2)]

    assert value_of(drifted(backend, without, with_it)) == [10, 5, 20]
    assert value_of(drifted(backend, with_it, without)) == [10, 20]


# -- replay only, and what a step costs ----------------------------------------------------------


@backends
def test_replay_only(backend: str) -> None:
    """`replay_only` stops at the first unrecorded call, runs no body and writes nothing."""

    async def w() -> list[int]:
        return [await s(1), await s(2)]

    one = Run(a_workflow(w))
    value_of(executed(backend, one))
    one.forget("s.2")
    one.calls()

    closing = executed(backend, one, replay_only=True)

    assert closing == Stopped("replayed", path="s.2")
    assert one.progress == ["replay s.1", "unrecorded s.2"]
    assert one.calls() == {"list": 1}


@backends
def test_cost_of_steps(backend: str) -> None:
    """A step is one create and no read, a failed attempt one more; replay is the list alone."""

    async def w() -> None:
        for i in range(5):
            await s(i)
        await durable.gather(s(5), s(6))
        await flaky(1)

    one = Run(a_workflow(w))

    executed(backend, one)
    assert one.calls() == {"list": 1, "create": 5 + 2 + 2}
    executed(backend, one)
    assert one.calls() == {"list": 1}


@backends
def test_current(backend: str) -> None:
    """A body knows its run, attempt, epoch and a key that only its own attempts share."""
    seen: list[durable.runtime.scopes.Current] = []

    @a_step(retry=Retry(first=0))
    async def look(x: int) -> None:
        seen.append(durable.current())
        if x == 1 and durable.current().attempt == 1:
            raise ValueError

    async def w() -> None:
        await look(1)
        await look(2)

    executed(backend, Run(a_workflow(w)))

    assert [(c.run_id, c.attempt, c.epoch) for c in seen] == [
        ("run", 1, 1), ("run", 2, 1), ("run", 1, 1),
    ]  # fmt: skip
    keys = [c.idempotency_key for c in seen]
    assert keys[0] == keys[1] != keys[2]
