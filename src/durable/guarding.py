"""`once`: an outside effect that takes place once for a key, from inside a step."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar, overload

from durable.effects import Effect
from durable.errors import NotInWorkflow
from durable.runtime.scopes import Current, here

P = ParamSpec("P")
R = TypeVar("R")


@overload
async def once(
    key: str, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
) -> R: ...
@overload
async def once(key: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
async def once(
    key: str, fn: Callable[P, Awaitable[R] | R], /, *args: P.args, **kwargs: P.kwargs
) -> R:
    """Let an outside effect take place once for a key, whichever step of whichever run asks.

    Claims the key, calls the function, records what it returned. Whoever asks for the same key
    later gets that value and calls nothing. If the function raised, the next to ask tries again.

    Args:
        key: of the effect, in the whole store: `f"welcome-mail:{customer}"`.
        fn: does it. A plain function is called in a thread.
        args: its arguments; `kwargs` as well.

    Raises:
        OutcomeUnknown: somebody began it, and it is not known what became of it.
        InvalidId: the key is empty, too long or has control characters.
        NotInWorkflow: called outside a step's body.
    """
    return await _effect(key).once(functools.partial(fn, *args, **kwargs))


def _effect(key: str) -> Effect:
    place = here.get()
    if not isinstance(place, Current):
        raise NotInWorkflow(
            "once() was called outside a step's body",
            hint="make what has the effect a step; scripts write `client.once(key, fn, ...)`",
        )
    store = place.inside("once").store
    return Effect(store=store, key=key, label=f"run {place.run_id}")
