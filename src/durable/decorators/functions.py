"""What steps and workflows have in common once decorated, and their calls outside a run."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any, Generic, ParamSpec, TypeVar

import anyio.to_thread

from durable.errors import NotInWorkflow
from durable.runtime.definitions import Definition
from durable.runtime.scopes import Scope

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

Awaited = Coroutine[Any, Any, R]


class Durable(Generic[P, R_co]):
    """What steps and workflows have in common: the plain function and its name."""

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.__wrapped__ = definition.fn
        self.__name__ = getattr(definition.fn, "__name__", definition.name)
        self.__qualname__ = getattr(definition.fn, "__qualname__", definition.name)
        self.__module__ = definition.fn.__module__
        self.__doc__ = definition.fn.__doc__

    @property
    def name(self) -> str:
        """The name it is recorded under."""
        return self.definition.name

    def __repr__(self) -> str:
        return f"<durable {type(self).__name__} {self.name}>"


async def plain(definition: Definition, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """What awaiting a call outside a run does; a sync function runs in a thread."""
    if definition.is_async:
        return await definition.fn(*args, **kwargs)
    return await anyio.to_thread.run_sync(lambda: definition.fn(*args, **kwargs))


def only_in_threads(scope: Scope, name: str, what: str) -> None:
    """Refuse a bare call of a sync function where it would block.

    Raises:
        NotInWorkflow: the scope belongs to an event loop's task.
    """
    if scope.owner > 0:
        raise NotInWorkflow(
            f"sync {what} {name!r} was called bare in an async workflow, where it would block "
            "the event loop",
            hint=f"write `await {name}.call(...)`",
        )
