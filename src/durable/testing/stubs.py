"""What stands in for a step's body in a test, and a note of every time a body ran."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from durable.decorators import Durable, StepFunction, WorkflowFunction, steps
from durable.errors import UsageError
from durable.runtime.definitions import StepDefinition

NOTHING: Any = object()


@dataclass(frozen=True)
class StubCall:
    """One time that a stub ran: the arguments it was given."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


@dataclass
class Stub:
    """What stands in for one step.

    Attributes:
        step: the step's name.
        calls: every time that it ran, retries included, in order.
    """

    step: str
    body: Callable[..., Any] = field(repr=False)
    calls: list[StubCall] = field(default_factory=list)


class Stubs:
    """The stubs of one environment, by the name of the step."""

    def __init__(self) -> None:
        self._stubs: dict[str, Stub] = {}

    def put(
        self,
        step: StepFunction[Any, Any] | str,
        body: Callable[..., Any] | None,
        returns: Any,
        raises: BaseException | type[BaseException] | None,
    ) -> Stub:
        """See `Environment.stub`."""
        definition = _definition(step)
        stub = Stub(definition.name, _body(definition, body, returns, raises))
        self._stubs[stub.step] = stub
        return stub

    def remove(self, step: StepFunction[Any, Any] | str) -> None:
        """The step's own body runs again."""
        self._stubs.pop(_definition(step).name, None)

    def body_of(self, definition: StepDefinition) -> Callable[..., Any]:
        """What runs as the body of this step."""
        stub = self._stubs.get(definition.name)
        if stub is None:
            return definition.fn
        return _async(stub) if definition.is_async else _sync(stub)


def _definition(step: object) -> StepDefinition:
    """The step meant, which must be one."""
    known = steps()
    if isinstance(step, StepFunction):
        return step.definition
    if isinstance(step, str):
        if step in known:
            return known[step]
        close = difflib.get_close_matches(step, known, n=3) or sorted(known)[:10]
        shown = ", ".join(close) or "none"
        raise UsageError(
            f"there is no step named {step!r} to stub; among those known here are: {shown}",
            hint="import the module that defines it, or hand over the step itself",
        )
    what = getattr(step, "__qualname__", repr(step))
    if isinstance(step, WorkflowFunction):
        raise UsageError(
            f"{what} is a workflow: only steps can be stubbed", hint="stub the steps it calls"
        )
    if isinstance(step, Durable) or callable(step):
        raise UsageError(f"{what} is no step", hint="only functions with @step can be stubbed")
    raise UsageError(f"a stub is for a step, not for {type(step).__name__}")


def _body(
    definition: StepDefinition,
    body: Callable[..., Any] | None,
    returns: Any,
    raises: BaseException | type[BaseException] | None,
) -> Callable[..., Any]:
    given = [body is not None, returns is not NOTHING, raises is not None]
    if sum(given) != 1:
        raise UsageError(
            f"a stub for {definition.name!r} needs exactly one of: a function, returns=, raises=",
            hint='for example: env.stub(charge, returns="receipt")',
        )
    if raises is not None:
        return functools.partial(_raise, raises)
    if body is None:
        return lambda *args, **kwargs: returns
    if inspect.iscoroutinefunction(body) and not definition.is_async:
        raise UsageError(
            f"step {definition.name!r} is a plain function: its stub cannot be `async def`",
            hint="make the stub a plain function as well",
        )
    return body


def _raise(error: BaseException | type[BaseException], *_args: object, **_kwargs: object) -> None:
    raise error


def _async(stub: Stub) -> Callable[..., Any]:
    async def body(*args: Any, **kwargs: Any) -> Any:
        stub.calls.append(StubCall(args, kwargs))
        value = stub.body(*args, **kwargs)
        return await value if inspect.isawaitable(value) else value

    return body


def _sync(stub: Stub) -> Callable[..., Any]:
    def body(*args: Any, **kwargs: Any) -> Any:
        stub.calls.append(StubCall(args, kwargs))
        return stub.body(*args, **kwargs)

    return body
